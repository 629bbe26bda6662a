package mesh

import (
	"slices"
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/routetable"
)

// Private topics are rows of a second table (DESIGN §8, private / public / authorize / unauthorize):
//
//	@T --> null        T is private
//	@T --> peer:NAME   NAME may use it
//
// They are this router's own: nothing of it is told to others, and nothing that others say of it counts.

// grantPattern is the pattern of a topic in the table of grants; what the topic means as a pattern does not matter here.
func grantPattern(topic string) string {
	pattern, _ := routetable.QuotePattern("@" + topic)
	return pattern
}

// allowed tells whether the table of grants lets a component use a topic.
func (m *Mesh) allowed(name, topic string) bool {
	var room [1]routetable.Group
	groups := m.o.Grants.Snapshot().LookupInto(room[:0], "@"+topic, nil)
	if len(groups) == 0 {
		return true
	}
	for i := range groups {
		for j := range groups[i].Matches {
			if hop := groups[i].Matches[j].Hop; hop != nil && hop.Scheme == "peer" && hop.Name == name {
				return true
			}
		}
	}
	return false
}

// grant gives the table of grants a command; false where it is not done.
func (m *Mesh) grant(by string, commands ...admin.Command) bool {
	caller := admin.Caller{User: by, Via: "mesh", Role: admin.RoleOperator}
	_, err := m.grants.Do(caller, admin.Apply{Commands: commands})
	if err != nil {
		m.o.Log.Error("a private topic could not be changed", "by", by, "error", err)
	}
	return err == nil
}

func makePrivate(topic string) admin.Command {
	return admin.Add{Route: routetable.NewRoute(grantPattern(topic), routetable.NullAddress)}
}

func (m *Mesh) privateTopic(by, topic string) bool { return m.grant(by, makePrivate(topic)) }

func (m *Mesh) publicTopic(by, topic string) bool {
	return m.grant(by, admin.DeletePattern{Pattern: grantPattern(topic)})
}

func (m *Mesh) authorize(by, topic, name string) bool {
	return m.grant(by, makePrivate(topic), admin.Add{Route: routetable.NewRoute(grantPattern(topic), hopOf(name))})
}

func (m *Mesh) unauthorize(by, topic, name string) bool {
	return m.grant(by, admin.Delete{Pattern: grantPattern(topic), Address: hopOf(name)})
}

// privateTopics is what private_topics_config tells: the private topics, and who may use each.
func (m *Mesh) privateTopics() []byte {
	lists := map[string][]string{}
	for r := range m.o.Grants.Snapshot().Routes() {
		topic, ok := unquoted(strings.TrimPrefix(r.Pattern, "@"))
		if !ok {
			continue
		}
		if _, there := lists[topic]; !there {
			lists[topic] = nil
		}
		if name, ok := strings.CutPrefix(r.Address, "peer:"); ok {
			lists[topic] = append(lists[topic], strings.ReplaceAll(name, "$$", "$"))
		}
	}
	for _, l := range lists {
		slices.Sort(l)
	}
	return appendLists(nil, lists)
}
