package cpu

import "golang.org/x/sys/unix"

// physicalMemory is how much memory the machine has.
func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return unknownMemory
	}
	return int64(info.Totalram) * int64(info.Unit)
}
