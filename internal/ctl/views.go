package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// entity is one managed thing of a router, by the names of its attributes.
type entity map[string]any

func (e entity) text(name string) string {
	if e[name] == nil {
		return ""
	}
	return fmt.Sprint(e[name])
}

func (e entity) number(name string) float64 { return float64(wholeOr(e[name], 0)) }

// view is a verb that lists the entities of one type.
type view struct {
	verb, kind, short, long string
	columns                 []viewColumn
	keeps                   func(e entity) bool
	limit                   int // 0 is none
}

// viewColumn is a column of the table form; wide ones are left out of the narrow form.
type viewColumn struct {
	head, attribute string
	wide            bool
}

func connectionsCommand(r *run) *cobra.Command {
	v := &view{
		verb: "connections", kind: "connection", short: "list the connections of the router",
		long: `Connections lists the open connections, oldest first. Class: client; websocket (a client by WebSocket); router (another Fingerpost
router, which dialled); hop (this router dialled, for a row of its table). Received counts messages, sent copies.`,
		columns: []viewColumn{
			{"ID", "name", false}, {"CLASS", "class", false}, {"CONTAINER", "container", false}, {"REMOTE", "remote", false}, {"USER", "user", false},
			{"ROLE", "role", false}, {"LINKS", "links", false}, {"RECEIVED", "received", false}, {"SENT", "sent", false}, {"SINCE", "since", false},
			{"TRANSPORT", "transport", true}, {"MECHANISM", "mechanism", true}, {"NODE-ID", "nodeId", true},
		},
	}
	var class, closing string
	c := r.viewCommand(v)
	c.Flags().StringVar(&class, "class", "", "only those of this `CLASS`")
	c.Flags().StringVar(&closing, "close", "", "close the connection with this `ID`")
	v.keeps = func(e entity) bool { return class == "" || e.text("class") == class }
	list := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if closing != "" {
			return r.closeConnection(c.Context(), closing)
		}
		return list(c, args)
	}
	return c
}

func linksCommand(r *run) *cobra.Command {
	v := &view{
		verb: "links", kind: "link", short: "list the links of the router's connections",
		long: `Links lists attached links, at most 10,000. Class: sender (with a target), anonymous (messages say where to), management,
receiver, hop. In flight are messages that a sender waits for, and copies that a receiver or hop has not settled. A limited sender has one
message at a time: no row matches its target.`,
		columns: []viewColumn{
			{"CONNECTION", "connection", false}, {"CLASS", "class", false}, {"ADDRESS", "address", false}, {"CREDIT", "credit", false},
			{"IN-FLIGHT", "inFlight", false}, {"MESSAGES", "messages", false}, {"LIMITED", "limited", false}, {"NAME", "name", false}, {"CONTAINER", "container", true},
		},
	}
	var class, connection, address string
	c := r.viewCommand(v)
	c.Flags().StringVar(&class, "class", "", "only those of this `CLASS`")
	c.Flags().StringVar(&connection, "connection", "", "only those of the connection with this `ID`")
	c.Flags().StringVar(&address, "address", "", "only those on this `ADDRESS`")
	v.keeps = func(e entity) bool {
		return (class == "" || e.text("class") == class) && (connection == "" || e.text("connection") == connection) &&
			(address == "" || e.text("address") == address)
	}
	return c
}

func hopsCommand(r *run) *cobra.Command {
	return r.viewCommand(&view{
		verb: "hops", kind: "hop", short: "list the peers that the router dials",
		long: `Hops lists the peers that rows of the table name and the router dials: connected; away (it tries again and again); idle (nothing to
send). Waiting are copies that are queued, or sent without an outcome.`,
		columns: []viewColumn{
			{"HOP", "name", false}, {"STATE", "state", false}, {"LINKS", "links", false}, {"WAITING", "waiting", false}, {"COPIES", "copies", false},
			{"NODE-ID", "nodeId", true},
		},
	})
}

func peersCommand(r *run) *cobra.Command {
	return r.viewCommand(&view{
		verb: "peers", kind: "peer", short: "list the neighbours: other routers, and components of the mesh",
		long: `Peers lists the neighbours of the router. Class: router (another Fingerpost router, at the other end of a connection of AMQP, whoever dialled);
rembus-router and rembus (a router, a component of the mesh); event-router (a router that events are linked with). Hop is what rows name it by; with routers
of the mesh it is the link's name, the same at both ends. Those of the mesh that are away are listed while something waits for them.`,
		columns: []viewColumn{
			{"NAME", "name", false}, {"CLASS", "class", false}, {"HOP", "hop", false}, {"STATE", "state", false}, {"REMOTE", "remote", false},
			{"WAITING", "waiting", false}, {"NODE-ID", "nodeId", true},
		},
	})
}

func unroutedCommand(r *run) *cobra.Command {
	v := &view{
		verb: "unrouted", kind: "unrouted", short: "list addresses whose messages went nowhere, and why",
		long: `Unrouted lists the addresses of messages that went nowhere, that of the latest message first, how often, and why the last of them did. The
router remembers the 1,000 addresses that were seen last.`,
		columns: []viewColumn{
			{"COUNT", "count", false}, {"ADDRESS", "address", false}, {"REASON", "reason", false}, {"LAST", "last", false}, {"FIRST", "first", true},
		},
	}
	c := r.viewCommand(v)
	c.Flags().IntVar(&v.limit, "limit", 0, "no more than `N`; 0 is all")
	return c
}

// viewCommand makes the verb of a view.
func (r *run) viewCommand(v *view) *cobra.Command {
	return &cobra.Command{
		Use: v.verb, Short: v.short, Long: v.long, Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			m, err := r.caller(c.Context())
			if err != nil {
				return err
			}
			defer m.close()
			list, err := queryEntities(c.Context(), m, v.kind)
			if err != nil {
				return err
			}
			list = v.keep(list)
			return r.print(list, func(p *printer) { v.draw(p, list) })
		},
	}
}

func (v *view) keep(list []entity) []entity {
	kept := []entity{}
	for _, e := range list {
		if v.limit > 0 && len(kept) >= v.limit {
			break
		}
		if v.keeps == nil || v.keeps(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func (v *view) draw(p *printer, list []entity) {
	if len(list) == 0 {
		p.line("none")
		return
	}
	var heads []string
	for _, c := range v.columns {
		if p.wide || !c.wide {
			heads = append(heads, c.head)
		}
	}
	p.columns(heads...)
	for _, e := range list {
		var cells []string
		for _, c := range v.columns {
			if p.wide || !c.wide {
				cells = append(cells, attributeCell(e, c.attribute))
			}
		}
		p.columns(cells...)
	}
}

// attributeCell is an attribute in a table: times without their T, false as nothing.
func attributeCell(e entity, attribute string) string {
	text := e.text(attribute)
	switch attribute {
	case "since", "first", "last":
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.Format("2006-01-02 15:04:05Z")
		}
	case "limited":
		return strings.TrimSuffix(text, "false")
	}
	return text
}

// queryEntities asks for all entities of a type, page by page.
func queryEntities(ctx context.Context, m caller, kind string) ([]entity, error) {
	all := []entity{}
	for {
		a, err := m.call(ctx, call{
			operation: "QUERY", name: "self", kind: "org.amqp.management",
			properties: map[string]any{"entityType": kind, "offset": uint64(len(all)), "count": uint64(pageRows)},
		})
		if status, ok := errors.AsType[*statusError](err); ok {
			return nil, no("%v", status)
		}
		if err != nil {
			return nil, err
		}
		page, err := readEntities(a.body)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) == 0 || int64(len(all)) >= wholeOr(a.properties["total"], 0) {
			return all, nil
		}
	}
}

// readEntities makes maps of the rows of a QUERY's answer.
func readEntities(body any) ([]entity, error) {
	x, _ := plain(body).(map[string]any)
	names, rows := plainList(x["attributeNames"]), plainList(x["results"])
	var list []entity
	for _, one := range rows {
		row := plainList(one)
		if len(row) != len(names) {
			return nil, unreachable("the answer to QUERY is not understood: %d values for %d attributes", len(row), len(names))
		}
		e := entity{}
		for i, name := range names {
			if s, ok := name.(string); ok && row[i] != nil && s != "type" && s != "identity" {
				e[s] = row[i]
			}
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *run) closeConnection(ctx context.Context, id string) error {
	m, err := r.caller(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	_, err = m.call(ctx, call{operation: "DELETE", kind: "connection", name: id})
	if status, ok := errors.AsType[*statusError](err); ok {
		return no("%v", status)
	}
	if err != nil {
		return err
	}
	return r.print(map[string]string{"closed": id}, func(p *printer) { p.line("connection " + url.PathEscape(id) + " closed") })
}
