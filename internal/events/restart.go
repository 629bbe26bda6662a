package events

import (
	"os"
	"os/exec"
	"strings"
)

// startAgain runs the command that starts a component again. The component finds out by itself where it goes on: with from_time "restart", or at
// the time that its environment has.
func (r *Router) startAgain(c *conn, from int64) {
	argv := r.o.Restart[c.name]
	if len(argv) == 0 {
		c.log.Error("a component is to be started again, and there is no command for it")
		r.unstartable(c)
		return
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "EDRI_COMPONENT="+c.name, "EDRI_FROM_TIME="+strings.Trim(string(appendTime(nil, from)), `"`))
	if err := cmd.Start(); err != nil {
		c.log.Error("a component could not be started again", "command", argv[0], "error", err)
		r.unstartable(c)
		return
	}
	c.log.Info("a component is started again", "command", argv[0], "pid", cmd.Process.Pid)
	go cmd.Wait() // nobody waits for this: the component outlives the router
}

func (r *Router) unstartable(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.record.conn == nil {
		c.record.unstartable = true
	}
}
