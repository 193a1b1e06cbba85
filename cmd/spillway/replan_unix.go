//go:build unix

package main

import (
	"os"
	"syscall"
)

// replanSignal asks a run to be planned again.
var replanSignal os.Signal = syscall.SIGUSR1
