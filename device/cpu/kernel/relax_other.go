//go:build !amd64

package kernel

import "runtime"

// relax gives way in a waiting loop.
func relax() { runtime.Gosched() }
