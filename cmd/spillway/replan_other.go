//go:build !unix

package main

import "os"

// replanSignal asks a run to be planned again: there is none here.
var replanSignal os.Signal
