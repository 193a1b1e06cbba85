package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Resident is how much physical memory the process has now, as the system counts it;
// where the system only knows the most it ever had, that. In bytes.
func Resident() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, fs.ErrNotExist) {
		return MostResident()
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm says %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// MostResident is the most physical memory the process ever had, in bytes.
func MostResident() (int64, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	if runtime.GOOS == "darwin" { // counts bytes, all others KiB
		return usage.Maxrss, nil
	}
	return usage.Maxrss << 10, nil
}
