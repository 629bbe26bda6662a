package routetable_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/fingerpost/fingerpost/routetable"
)

func Example() {
	t := routetable.New()
	t.Add("COLOSSUS", "amqp://5.6.7.8:1234")
	t.Add("COLOSSUS", "5.6.7.9:1234")
	t.Add("sensors/%/*", "amqp://$1.example/$2")
	for _, address := range []string{"COLOSSUS", "sensors/eu/temp"} {
		for _, group := range t.Lookup(address) {
			for _, match := range group.Matches {
				fmt.Println(address, "-->", match.Hop.Text)
			}
		}
	}
	// Output:
	// COLOSSUS --> amqp://5.6.7.8:1234
	// COLOSSUS --> amqp://5.6.7.9:1234
	// sensors/eu/temp --> amqp://eu.example/temp
}

func ExampleLoad() {
	t, err := routetable.Load(strings.NewReader("match: first\nHAL9000 --> null\n* --> amqp://broker/$1 ; fallback\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	t.Snapshot().File(false).WriteYAML(os.Stdout)
	_, err = routetable.Load(strings.NewReader("HAL9000 --> h:port\n"))
	fmt.Println(err)
	// Output:
	// match: first
	// routes:
	//   - {pattern: HAL9000, address: null}
	//   - {pattern: "*", address: "amqp://broker/$1", fallback: true}
	// line 1, column 13: address, column 3: the port is not a number
}

func ExampleTable_Apply() {
	t := routetable.New()
	t.Add("jobs", "10.0.0.1", routetable.WithPick(routetable.PickAny))
	seen := t.Revision()
	change, err := t.Apply(
		routetable.Op{Verb: routetable.VerbReplaceAll, Route: routetable.NewRoute("jobs", ""), Addresses: []string{"10.0.0.2", "10.0.0.3"}, IfRevision: &seen},
		routetable.Op{Verb: routetable.VerbAdd, Route: routetable.NewRoute("jobs/#", "null")},
	)
	fmt.Println(len(change.Added), len(change.Removed), change.Revision, err)
	_, err = t.Add("jobs", "10.0.0.4", routetable.WithRevision(seen))
	fmt.Println(err)
	// Output:
	// 3 1 2 <nil>
	// the table is at revision 2, not 1 (read it again)
}

func ExampleSnapshot_Explain() {
	t := routetable.New()
	t.Add("orders", "topic:orders")
	t.Add("topic:orders", "peer:east", routetable.WithOrigin("peer:east/1/s"))
	x := t.Snapshot().Explain("orders", "", nil)
	fmt.Println(x.Matches[0].Hop, x.Hops)
	// Output: topic:orders [peer:east]
}

func ExampleTable_LookupInto() {
	t := routetable.New()
	t.Add("orders", "amqp://eu.example", routetable.WithWhen("Property(`region`, `{eu-.*}`)"))
	property := func(name string) (string, bool) { return "eu-north", name == "region" }
	var room [4]routetable.Group
	groups := t.LookupInto(room[:0], "orders", property)
	fmt.Println(len(groups), groups[0].Matches[0].Hop.Text)
	fmt.Println(len(t.Lookup("orders")))
	// Output:
	// 1 amqp://eu.example
	// 0
}
