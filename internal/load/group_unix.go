//go:build unix

package load

import (
	"os/exec"
	"syscall"
)

// apart keeps a Ctrl-C at the terminal from a child: it is ended when the run is.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
