//go:build !unix

package offheap

// acquire allocates on the Go heap, because this system cannot map memory.
func acquire(size int64) ([]byte, error) { return make([]byte, size), nil }

func release([]byte) error { return nil }
