package admin

import (
	"fmt"
	"slices"
)

// Entity is one managed thing as a map of attributes. Every entity has name, identity and type; what a provider
// leaves out of these is filled in. Values are strings, booleans, numbers, lists ([]any) and maps (map[string]any).
type Entity map[string]any

// Provider lists the entities of one type (connection, link, hop, listener, log): other packages register theirs with
// Core.Register. Its methods are called from any goroutine.
type Provider interface {
	Type() string         // the short name
	Attributes() []string // what List may hold, besides name, identity and type
	List() []Entity       // a fresh list, in an order that does not jump; the maps are the caller's
}

// Deleter is a Provider whose entities can be deleted (a connection is closed). An error may be a Refuse.
type Deleter interface {
	Delete(identity string) error
}

// Updater is a Provider whose entities can be changed (the level of a log). changes holds what the request named;
// the answer is the entity as it is now.
type Updater interface {
	Update(identity string, changes map[string]any) (Entity, error)
}

// Operator is a Provider with operations of its own, which are asked for with its type. Operate authorises the caller; the answer is a map.
type Operator interface {
	Operations() []string
	Operate(caller Caller, operation string, arguments Arguments) (map[string]any, error)
}

// kind is one entity type at the door.
type kind interface {
	typeName() string
	attributes() []string
	operations() []string
	create(caller Caller, name string, attributes args) (answer, error)
	read(caller Caller, name, identity string) (Entity, error)
	update(caller Caller, name, identity string, changes args) (answer, error)
	remove(caller Caller, name, identity string) (answer, error)
}

// entityAttributes are what every entity has.
var entityAttributes = []string{"name", "identity", "type"}

// listed is a kind of few entities that can be listed whole.
type listed struct {
	p Provider
}

func (l listed) typeName() string { return l.p.Type() }

func (l listed) attributes() []string {
	names := slices.Clone(entityAttributes)
	for _, a := range l.p.Attributes() {
		if !slices.Contains(names, a) {
			names = append(names, a)
		}
	}
	return names
}

func (l listed) operations() []string {
	ops := []string{"READ"}
	if _, ok := l.p.(Updater); ok {
		ops = append(ops, "UPDATE")
	}
	if _, ok := l.p.(Deleter); ok {
		ops = append(ops, "DELETE")
	}
	if more, ok := l.p.(interface{ Operations() []string }); ok {
		ops = append(ops, more.Operations()...)
	}
	return ops
}

// list gives the entities with name, identity and type filled in.
func (l listed) list(caller Caller) []Entity {
	list := l.p.List()
	for i, e := range list {
		if e == nil {
			e = Entity{}
			list[i] = e
		}
		e["type"] = l.p.Type()
		if e["identity"] == nil {
			e["identity"] = e["name"]
		}
		if e["identity"] == nil {
			e["identity"] = fmt.Sprintf("%s/%d", l.p.Type(), i)
		}
		if e["name"] == nil {
			e["name"] = ""
		}
		if caller.Role < RoleOperator {
			maskEntity(e)
		}
	}
	return list
}

func (l listed) read(caller Caller, name, identity string) (Entity, error) {
	for _, e := range l.list(caller) {
		if identity != "" && e["identity"] == identity || identity == "" && e["name"] == name {
			return e, nil
		}
	}
	return nil, notFound(l.p.Type(), name, identity)
}

func (l listed) create(Caller, string, args) (answer, error) {
	return answer{}, unsupported("CREATE", l.p.Type())
}

func (l listed) update(caller Caller, name, identity string, changes args) (answer, error) {
	u, ok := l.p.(Updater)
	if !ok {
		return answer{}, unsupported("UPDATE", l.p.Type())
	}
	e, err := l.read(caller, name, identity)
	if err != nil {
		return answer{}, err
	}
	id, _ := e["identity"].(string)
	e, err = u.Update(id, map[string]any(changes))
	if err != nil {
		return answer{}, err
	}
	return answer{status: StatusOK, body: map[string]any(e)}, nil
}

func (l listed) remove(caller Caller, name, identity string) (answer, error) {
	d, ok := l.p.(Deleter)
	if !ok {
		return answer{}, unsupported("DELETE", l.p.Type())
	}
	e, err := l.read(caller, name, identity)
	if err != nil {
		return answer{}, err
	}
	id, _ := e["identity"].(string)
	if err := d.Delete(id); err != nil {
		return answer{}, err
	}
	return answer{status: StatusNoContent, body: map[string]any{}}, nil
}

// maskEntity hides userinfo in every text of an entity.
func maskEntity(e Entity) {
	for k, v := range e {
		if s, ok := v.(string); ok {
			e[k] = maskUserinfo(s)
		}
	}
}
