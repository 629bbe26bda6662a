package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fingerpost/fingerpost/internal/house/tube"
)

// Four routers, each a process, in a ring with a chord, and a cut between the first and the others: every publish comes to every subscriber once, every command to
// every router of another kind once, and after the cut all know the same.
func TestAMeshOfProcesses(t *testing.T) {
	urls := startMesh(t, "")
	p := start(t, "rembus mesh", pythonProgram, append([]string{"rembus/mesh.py"}, urls.all...)...)
	for _, want := range []string{"publishes", "floods", "one of two", "cut", "join", "after a partition", "grants", "done"} {
		if got := p.line(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		switch want {
		case "cut":
			urls.cut("127.0.0.1:1")
			fmt.Fprintln(p.stdin, "it is cut off")
		case "join":
			urls.cut(urls.first)
			fmt.Fprintln(p.stdin, "it is back")
		}
	}
}

// meshURLs are those of the routers of a mesh.
type meshURLs struct {
	all   []string
	first string // host:port of the first router
	tubes []*tube.Tube
}

// cut ends all links of the first router. They come back where they are led.
func (u *meshURLs) cut(to string) {
	for _, x := range u.tubes {
		x.Lead(to)
	}
}

// startMesh starts four routers: 1, 2 and 3 in a triangle, and the first, which 1 and 3 connect to by tubes.
func startMesh(t *testing.T, more string) *meshURLs {
	t.Helper()
	u := &meshURLs{}
	links := [][]int{{}, {0}, {1}, {2, 1, 0}}
	for i, to := range links {
		var peers []string
		for _, j := range to {
			at := u.all[j]
			if j == 0 {
				x := tube.Lay(t)
				x.Lead(u.first)
				u.tubes = append(u.tubes, x)
				at = "ws://" + x.Address()
			}
			peers = append(peers, fmt.Sprintf("{url: '%s'}", at))
		}
		config := more + "mesh: {peers: [" + strings.Join(peers, ", ") + "]}\n"
		_, urls := startRembus(t, fmt.Sprintf("r%d", i), config, listener("rembus+ws", ""))
		u.all = append(u.all, urls[0])
		if i == 0 {
			u.first = strings.TrimPrefix(urls[0], "ws://")
		}
	}
	return u
}
