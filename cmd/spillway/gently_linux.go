package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startGently starts a program that gets cores only when nobody else wants them. A process has
// the priority of the thread that starts it; that thread ends with its goroutine, since it is
// locked to it and never unlocked.
func startGently(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		const lowest = 19
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowest) // without it the program is only less polite
		started <- cmd.Start()
	}()
	return <-started
}
