// Package nvml asks NVIDIA's management library (NVML) for the state of GPUs: their PCIe
// link, temperature, power, clock and the processes that hold their memory. The answers are
// only shown to people; nothing else depends on them.
package nvml

import (
	"fmt"

	"spillway/internal/dl"
)

// names are the file names of the library.
var names = []string{"libnvidia-ml.so.1", "libnvidia-ml.so"}

// Library is the open library.
type Library struct {
	lib    *dl.Library
	failed dl.Func // nvmlErrorString
}

// Open opens and initializes the library, which comes with the GPU driver.
func Open() (*Library, error) {
	var lib *dl.Library
	var err error
	for _, name := range names {
		if lib, err = dl.Open(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("no NVIDIA management library: %w; it comes with the driver", err)
	}
	l := &Library{lib: lib}
	if l.failed, err = lib.Func("nvmlErrorString"); err != nil {
		return nil, err
	}
	return l, l.call("nvmlInit_v2")
}

// Close shuts the library down.
func (l *Library) Close() error { return l.call("nvmlShutdown") }

// call calls a function by name and turns its return code into an error.
//
//go:uintptrescapes
func (l *Library) call(name string, args ...uintptr) error {
	f, err := l.lib.Func(name)
	if err != nil {
		return err
	}
	if code := int32(f.Call(args...)); code != 0 {
		return &Error{Call: name, Code: int(code), Text: dl.Text(l.failed.Call(uintptr(code)), 128)}
	}
	return nil
}

// Error is a call that the library refused.
type Error struct {
	Call string
	Code int
	Text string // "Not Supported"
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// insufficientSize is the code for a list that is too short for the answer.
const insufficientSize = 7
