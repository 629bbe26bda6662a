package forwarder

import (
	"container/heap"
	"sync"
)

// alarms call lines at a time of their own, sooner than the node's tick. A line has one at most: the soonest it asked for.
type alarms struct {
	sooner chan struct{} // the first alarm is another one

	mu   sync.Mutex // a leaf
	list alarmList
}

// set has the line called at a time, or before.
func (a *alarms) set(ln *line, at int64) {
	a.mu.Lock()
	switch {
	case ln.alarmAt == 0:
		ln.alarmAt = at
		heap.Push(&a.list, ln)
	case at < ln.alarmAt:
		ln.alarmAt = at
		heap.Fix(&a.list, ln.alarmIndex)
	}
	first := a.list[0] == ln
	a.mu.Unlock()
	if first {
		select {
		case a.sooner <- struct{}{}:
		default:
		}
	}
}

// next is when the first alarm is; 0 if there is none.
func (a *alarms) next() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) == 0 {
		return 0
	}
	return a.list[0].alarmAt
}

// due takes out the lines whose time has come.
func (a *alarms) due(at int64) (lines []*line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.list) > 0 && a.list[0].alarmAt <= at {
		ln := heap.Pop(&a.list).(*line)
		ln.alarmAt = 0
		lines = append(lines, ln)
	}
	return lines
}

// alarmList is a heap.
type alarmList []*line

func (x alarmList) Len() int           { return len(x) }
func (x alarmList) Less(i, j int) bool { return x[i].alarmAt < x[j].alarmAt }
func (x alarmList) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].alarmIndex, x[j].alarmIndex = i, j
}

func (x *alarmList) Push(v any) {
	ln := v.(*line)
	ln.alarmIndex = len(*x)
	*x = append(*x, ln)
}

func (x *alarmList) Pop() any {
	old := *x
	ln := old[len(old)-1]
	old[len(old)-1] = nil
	*x = old[:len(old)-1]
	return ln
}
