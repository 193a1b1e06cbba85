//go:build !amd64

package dtype

func available() []path { return []path{portable()} }

// asElements views bytes as elements where the CPU allows it; here callers assemble them
// one by one.
func asElements[E float32 | uint16]([]byte) ([]E, bool) { return nil, false }
