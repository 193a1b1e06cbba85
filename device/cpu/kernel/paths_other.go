//go:build !amd64

package kernel

// available lists the paths this CPU can run.
func available() []*routines { return []*routines{portable()} }
