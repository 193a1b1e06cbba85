package rig

import (
	"errors"
	"fmt"
	"io/fs"
)

// Resident is how much physical memory the process has now, in bytes; where the system only
// knows the peak, it is that.
func Resident() (int64, error) { return readStatus("VmRSS") }

// PeakResident is the most physical memory the process ever had, in bytes.
func PeakResident() (int64, error) { return readStatus("VmHWM") }

// readStatus reads a line of the process's status file. getrusage is of no use on Linux: a
// process begins with the peak of its parent.
func readStatus(name string) (int64, error) {
	kib, err := readCounts("/proc/self/status")
	if errors.Is(err, fs.ErrNotExist) {
		return residentNow(name)
	}
	if _, has := kib[name]; err == nil && !has {
		err = fmt.Errorf("/proc/self/status has no %s", name)
	}
	return kib[name] << 10, err
}
