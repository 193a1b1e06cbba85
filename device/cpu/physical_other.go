//go:build !linux && !darwin

package cpu

// physicalMemory is not known here.
func physicalMemory() int64 { return unknownMemory }
