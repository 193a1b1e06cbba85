//go:build !amd64

package dtype

func available() []path { return []path{portable()} }

// inOrder sees bytes as elements where the processor can; here they are put together one
// by one.
func asElements[E float32 | uint16]([]byte) ([]E, bool) { return nil, false }
