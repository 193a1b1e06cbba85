//go:build !amd64

package kernel

// available lists the paths this processor can run.
func available() []*routines { return []*routines{portable()} }
