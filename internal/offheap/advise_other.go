//go:build !linux

package offheap

// advise does nothing: huge pages are asked for on Linux only.
func advise([]byte) {}
