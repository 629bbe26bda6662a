package admin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

// managementType is the entity type of the node itself. Source: AMQP Management 1.0 working draft, 3.3.
const managementType = "org.amqp.management"

// request is a management request, read from its message.
type request struct {
	operation  string // upper case
	kind       string // entity type by its short name; empty is the node itself
	name       string
	identity   string
	properties args // the application properties
	body       any  // map[string]any, []any, a scalar, or nil

	id       any // what the answer's correlation-id echoes
	replyTo  string
	canWatch bool // who carries the answer can carry more
}

// answer is what a request gets back. A change sets revision, which every answer to one carries.
type answer struct {
	status     int
	text       string
	properties map[string]any
	body       any
	watch      *Watch // what follows it
}

func (a answer) with(name string, value any) answer {
	if a.properties == nil {
		a.properties = map[string]any{}
	}
	a.properties[name] = value
	return a
}

// Reply is what a request leads to.
type Reply struct {
	Message []byte // the answer, encoded; nil where nobody is to be answered
	To      string // the request's reply-to
	Watch   *Watch // what goes there after the answer; nil is nothing. Who gets it closes it.
}

// Answer answers one AMQP Management request, an encoded AMQP message. A request without reply-to is done and not answered. The same
// holds for bytes that are no message, since nobody is known to answer to. Source: protocols/management.md.
func (c *Core) Answer(caller Caller, message []byte) Reply {
	return c.reply(caller, message, true)
}

// Handle is Answer for those who cannot carry a watch: it is refused.
func (c *Core) Handle(caller Caller, message []byte) (reply []byte, replyTo string) {
	r := c.reply(caller, message, false)
	return r.Message, r.To
}

func (c *Core) reply(caller Caller, message []byte, canWatch bool) Reply {
	q, err := decodeRequest(message)
	q.canWatch = canWatch
	return c.replyTo(caller, q, err)
}

// replyTo is the reply to a request that was decoded, or was not.
func (c *Core) replyTo(caller Caller, q request, err error) Reply {
	if err != nil && q.replyTo == "" {
		return Reply{}
	}
	a := answer{}
	if err == nil {
		a, err = c.handle(caller, q)
	}
	return replyWith(q, a, err)
}

// replyWith is the reply of what came of a request.
func replyWith(q request, a answer, err error) Reply {
	if err != nil {
		a = answerError(err, a)
	}
	if q.replyTo == "" {
		return Reply{}
	}
	return Reply{Message: encodeAnswer(q, a), To: q.replyTo, Watch: a.watch}
}

// answerError turns an error into the answer with its status; properties of a survive (a refused change still tells
// the revision).
func answerError(err error, a answer) answer {
	a.body = nil
	a.status, a.text = statusOf(err)
	return a
}

// statusOf maps the errors of the table and of this package to a status and words. Anything else is ours, and its
// words stay here.
func statusOf(err error) (int, string) {
	var refused *Error
	var conflict *routetable.ConflictError
	var table *routetable.RefusedError
	var file *routetable.FileError
	var state *routetable.StateError
	switch {
	case errors.As(err, &refused):
		return refused.Status, refused.Text
	case errors.As(err, &conflict):
		return StatusConflict, err.Error()
	case errors.Is(err, routetable.ErrNotFound):
		return StatusNotFound, err.Error()
	case errors.As(err, &table), errors.As(err, &file):
		return StatusBadRequest, err.Error()
	}
	if errors.As(err, &state) {
		return StatusInternal, err.Error() // the operator has to know what the disk says
	}
	return StatusInternal, "internal error"
}

// handle runs one request.
func (c *Core) handle(caller Caller, q request) (answer, error) {
	switch q.operation {
	case "":
		return answer{}, refuse(StatusBadRequest, "operation: missing: give it as an application property, a string")
	case "CREATE", "READ", "UPDATE", "DELETE":
		return c.handleEntity(caller, q)
	case "QUERY":
		return c.handleQuery(caller, q)
	case "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES":
		return c.handleGet(caller, q)
	}
	if o := c.operator(q); o != nil {
		arguments, err := q.arguments()
		if err != nil {
			return answer{}, err
		}
		body, err := o.Operate(caller, q.operation, arguments)
		return answer{status: StatusOK, body: body}.with("revision", c.table.Revision()), err
	}
	return c.handleTable(caller, q)
}

// operator is the provider that has the request's operation, where the request names its type.
func (c *Core) operator(q request) Operator {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.providers {
		if o, ok := p.(Operator); ok && p.Type() == q.kind && slices.Contains(o.Operations(), q.operation) {
			return o
		}
	}
	return nil
}

// tableOperation gives the operation that a request asks of the table, where the caller may do it.
func (q request) tableOperation(caller Caller) (tableOperation, error) {
	op, ok := tableOperations[q.operation]
	if !ok {
		return op, refuse(StatusNotImplemented, "%s: no such operation", q.operation)
	}
	if q.kind != "" && q.kind != tableType {
		return op, refuse(StatusNotImplemented, "%s: not an operation of type %s but of %s", q.operation, q.kind, tableType)
	}
	if who := firstOf(q.name, q.identity); q.kind == tableType && who != "" && who != tableName && who != tableIdentity {
		return op, refuse(StatusNotFound, "no table %q: this node has %q", who, tableName)
	}
	return op, caller.may(op.role, q.operation)
}

// handleTable runs an operation of the table.
func (c *Core) handleTable(caller Caller, q request) (answer, error) {
	op, err := q.tableOperation(caller)
	if err != nil {
		return answer{}, err
	}
	if q.operation == "WATCH" && q.canWatch {
		return c.handleWatch(caller, q)
	}
	arguments, err := q.arguments()
	if err != nil {
		return answer{}, err
	}
	a, err := op.run(c, caller, arguments)
	return c.withRevision(op, a), err
}

// withRevision is the answer with the revision, where it carries one.
func (c *Core) withRevision(op tableOperation, a answer) answer {
	if op.changes && a.properties["revision"] == nil {
		a = a.with("revision", c.table.Revision())
	}
	return a
}

// propertyArguments are the arguments of operations that may also come as application properties.
var propertyArguments = []string{
	"pattern", "address", "origin", "target", "ifRevision", "session", "mode", "dryRun", "snapshot", "offset", "all",
}

// arguments are the body's map, over those application properties that are arguments.
func (q request) arguments() (args, error) {
	all := args{}
	for _, name := range propertyArguments {
		if v, there := q.properties[name]; there {
			all[name] = v
		}
	}
	switch body := q.body.(type) {
	case nil:
	case map[string]any:
		maps.Copy(all, body)
	case string, []byte:
		all["text"] = body // LOAD-CHUNK sent as plain text
	default:
		return nil, refuse(StatusBadRequest, "%s: the body must be a map of arguments, got %s", q.operation, kindOf(q.body))
	}
	return all, nil
}

// attributes reads the body of CREATE and UPDATE.
func (q request) attributes() (args, error) {
	switch body := q.body.(type) {
	case nil:
		return args{}, nil
	case map[string]any:
		return args(body), nil
	}
	return nil, refuse(StatusBadRequest, "%s: the body must be a map of attributes, got %s", q.operation, kindOf(q.body))
}

// shortType drops a prefix that ends in a dot; the node's own type, and "self", read as empty.
func shortType(name string) string {
	if name == managementType {
		return ""
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// handleGet answers the questions about the node's types.
func (c *Core) handleGet(caller Caller, q request) (answer, error) {
	if err := caller.may(RoleViewer, q.operation); err != nil {
		return answer{}, err
	}
	if q.operation == "GET-MGMT-NODES" {
		return answer{status: StatusOK, body: []any{}}, nil
	}
	kinds, err := c.selectKinds(q)
	if err != nil {
		return answer{}, err
	}
	body := map[string]any{}
	for _, k := range kinds {
		switch q.operation {
		case "GET-ATTRIBUTES":
			body[k.typeName()] = listOf(k.attributes())
		case "GET-OPERATIONS":
			body[k.typeName()] = listOf(k.operations())
		default: // GET-TYPES: no type extends another; GET-ANNOTATIONS: there are none
			body[k.typeName()] = []any{}
		}
	}
	return answer{status: StatusOK, body: body}, nil
}

// selectKinds gives the kinds that the request's entityType names: all of them where it names none.
func (c *Core) selectKinds(q request) ([]kind, error) {
	name, err := q.properties.text("entityType")
	if err != nil {
		return nil, err
	}
	if name = shortType(name); name == "" {
		name = q.kind // some tools send the entity type as type
	}
	all := c.kinds()
	if name == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(k kind) bool { return k.typeName() == name })
	if i < 0 {
		return nil, refuse(StatusNotFound, "no entity type %q", name)
	}
	return all[i : i+1], nil
}

func listOf(names []string) []any {
	list := make([]any, len(names))
	for i, n := range names {
		list[i] = n
	}
	return list
}

// handleEntity does CREATE, READ, UPDATE and DELETE.
func (c *Core) handleEntity(caller Caller, q request) (answer, error) {
	role := RoleAdmin
	switch {
	case q.operation == "READ":
		role = RoleViewer
	case q.kind == routeType || q.kind == "":
		role = RoleOperator
	}
	if err := caller.may(role, strings.TrimSpace(q.operation+" "+q.kind)); err != nil {
		return answer{}, err
	}
	if q.operation == "CREATE" && q.kind == "" {
		return answer{}, refuse(StatusBadRequest, "CREATE: type: missing")
	}
	if q.operation != "CREATE" && q.name == "" && q.identity == "" {
		return answer{}, refuse(StatusBadRequest, "%s: give name or identity", q.operation)
	}
	attributes := args{}
	if q.operation == "CREATE" || q.operation == "UPDATE" {
		var err error
		if attributes, err = q.attributes(); err != nil {
			return answer{}, err
		}
	}
	k, err := c.findKind(q)
	if err != nil {
		return answer{}, err
	}
	if k.typeName() != routeType {
		// A request without a type may have found an entity that needs more.
		if q.operation != "READ" {
			if err := caller.may(RoleAdmin, q.operation+" "+k.typeName()); err != nil {
				return answer{}, err
			}
		}
	}
	switch q.operation {
	case "CREATE":
		return k.create(caller, q.name, attributes)
	case "READ":
		e, err := k.read(caller, q.name, q.identity)
		return answer{status: StatusOK, body: map[string]any(e)}, err
	case "UPDATE":
		return k.update(caller, q.name, q.identity, attributes)
	}
	return k.remove(caller, q.name, q.identity)
}

// findKind gives the kind that a request names; without a type, the first that has such an entity.
func (c *Core) findKind(q request) (kind, error) {
	all := c.kinds()
	if q.kind == "" && q.operation != "CREATE" {
		for _, k := range all {
			if _, err := k.read(Caller{Role: RoleAdmin}, q.name, q.identity); err == nil {
				return k, nil
			}
		}
		return nil, notFound("entity", q.name, q.identity)
	}
	for _, k := range all {
		if k.typeName() == q.kind {
			return k, nil
		}
	}
	return nil, refuse(StatusNotFound, "no entity type %q", q.kind)
}

func notFound(what, name, identity string) error {
	if identity != "" {
		return refuse(StatusNotFound, "no %s with identity %q", what, identity)
	}
	return refuse(StatusNotFound, "no %s with name %q", what, name)
}

// unsupported refuses an operation that entities of a type do not have.
func unsupported(operation, kind string) error {
	return refuse(StatusNotImplemented, "%s: no such operation of type %s", operation, kind)
}

// String names a request in logs.
func (q request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", q.operation, q.kind, firstOf(q.name, q.identity)))
}
