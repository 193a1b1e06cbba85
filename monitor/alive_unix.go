//go:build unix

package monitor

import (
	"errors"
	"syscall"
)

// alive says whether a process of this computer runs.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
