package components

import (
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
)

// objectEntity is the objects at the door: entities of the type object, which viewers read, and the operation EDIT-OBJECTS.
//
// EDIT-OBJECTS takes put (a text in the form of components.yaml), delete (a list of names), ifRevision and dryRun. It answers revision, generation,
// objects (a list of maps with name and change), rows (how many were added and removed), note and warnings.
type objectEntity struct{ b *Broker }

const editObjects = "EDIT-OBJECTS"

func (objectEntity) Type() string { return "object" }

func (objectEntity) Attributes() []string {
	return []string{"kind", "object", "origin", "over", "text", "problem"}
}

func (objectEntity) Operations() []string { return []string{editObjects} }

func (x objectEntity) List() []admin.Entity {
	list := []admin.Entity{}
	for _, o := range x.b.Objects() {
		kind, name, _ := strings.Cut(o.Name, "/")
		list = append(list, admin.Entity{
			"name": o.Name, "identity": "object/" + o.Name, "kind": kind, "object": name, "origin": o.Origin, "over": o.Over, "text": o.Text, "problem": o.Why,
		})
	}
	return list
}

func (x objectEntity) Operate(caller admin.Caller, operation string, a admin.Arguments) (map[string]any, error) {
	var e Edit
	for name := range a {
		switch name {
		case "put", "delete", "ifRevision", "dryRun":
		default:
			return nil, admin.Refuse(admin.StatusBadRequest, "%s: there is no argument %q", operation, name)
		}
	}
	var err error
	if e.Put, err = a.Text("put"); err == nil {
		e.DryRun, err = a.Flag("dryRun")
	}
	if err != nil {
		return nil, err
	}
	if n, given, err := a.Count("ifRevision"); err != nil {
		return nil, err
	} else if given {
		e.IfRevision = &n
	}
	if e.Delete, err = a.Texts("delete"); err != nil {
		return nil, err
	}
	for i, name := range e.Delete {
		kind, rest, _ := strings.Cut(name, "/")
		if e.Delete[i], err = ObjectName(kind, rest); err != nil {
			return nil, admin.Refuse(admin.StatusBadRequest, "delete: %v", err)
		}
	}
	done, err := x.b.Edit(caller, e)
	if err != nil {
		return nil, err
	}
	warnings := []any{}
	for _, p := range done.Warnings {
		warnings = append(warnings, p.words())
	}
	return map[string]any{
		"revision": done.Revision, "generation": done.Generation, "objects": admin.ObjectMaps(done.Objects),
		"added": uint64(len(done.Added)), "removed": uint64(len(done.Removed)), "note": done.Note, "warnings": warnings,
	}, nil
}
