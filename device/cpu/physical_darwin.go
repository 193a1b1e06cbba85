package cpu

import "golang.org/x/sys/unix"

// physicalMemory is how much memory the machine has.
func physicalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return unknownMemory
	}
	return int64(n)
}
