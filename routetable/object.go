package routetable

import (
	"fmt"
	"maps"
	"slices"
)

// ObjectChange is an object that a change made another: the empty text is one that is not there.
//
// An object is a named text that the table keeps beside its rows: what an adapter makes rows of, such as the deployment of components. Objects
// are part of a revision, as configured rows are: in the journal, the history, a rollback, a diff.
type ObjectChange struct {
	Name          string
	Before, After string
}

// The bounds of objects.
const (
	maxObjectName  = 1 << 10
	maxObjectText  = 1 << 20
	maxObjects     = 10_000
	maxObjectBytes = 32 << 20 // of all texts
)

// Objects are the objects by name. The map is shared and must not be written to.
func (s *Snapshot) Objects() map[string]string { return s.objects }

// object makes an object have a text; the empty text takes it away.
func (e *edit) object(op *Op) error {
	switch {
	case op.Object == "" || len(op.Object) > maxObjectName:
		return &RefusedError{What: "its name is empty or longer than 1 KiB", Where: "object"}
	case len(op.Text) > maxObjectText:
		return &RefusedError{What: "its text is longer than 1 MiB", Where: op.Object}
	case e.s.objects[op.Object] == op.Text && op.Text == "":
		e.note("there is no %s", op.Object)
		return nil
	case e.s.objects[op.Object] == op.Text:
		e.note("%s is so already", op.Object)
		return nil
	}
	e.setObject(op.Object, op.Text)
	return nil
}

// checkObjects holds all objects together to their bounds.
func (s *Snapshot) checkObjects() error {
	bytes := 0
	for _, text := range s.objects {
		bytes += len(text)
	}
	if bytes > maxObjectBytes || len(s.objects) > maxObjects {
		return &RefusedError{What: fmt.Sprintf("more than %d objects or %d MiB of them", maxObjects, maxObjectBytes>>20)}
	}
	return nil
}

// setObject sets the text of an object. The first of an edit copies the map.
func (e *edit) setObject(name, text string) {
	if e.objects == nil {
		e.objects = map[string]bool{}
		e.s.objects = maps.Clone(e.s.objects)
		if e.s.objects == nil {
			e.s.objects = map[string]string{}
		}
	}
	e.objects[name] = true
	if e.s.objects[name] = text; text == "" {
		delete(e.s.objects, name)
	}
}

// objectChanges are the objects that the edit made others, in the order of their names.
func (e *edit) objectChanges() (list []ObjectChange) {
	for _, name := range slices.Sorted(maps.Keys(e.objects)) {
		if was, now := e.base.objects[name], e.s.objects[name]; was != now {
			list = append(list, ObjectChange{name, was, now})
		}
	}
	return list
}

// objectsBetween are the objects that differ in two pasts of the snapshot.
func (s *Snapshot) objectsBetween(a, b *past) (list []ObjectChange) {
	names := map[string]bool{}
	for _, p := range [...]*past{a, b} {
		for name := range p.objects {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was, is := s.objectAt(a, name), s.objectAt(b, name); was != is {
			list = append(list, ObjectChange{name, was, is})
		}
	}
	return list
}

// objectAt is the text that an object had in the past.
func (s *Snapshot) objectAt(p *past, name string) string {
	if text, differs := p.objects[name]; differs {
		return text
	}
	return s.objects[name]
}
