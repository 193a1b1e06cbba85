package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var (
	driversMu sync.RWMutex
	drivers   = map[string]Driver{}
)

// Register makes a driver known by name. It is called from init functions, so a
// second registration is a programming error and panics.
func Register(name string, d Driver) {
	driversMu.Lock()
	defer driversMu.Unlock()
	if _, twice := drivers[name]; twice || d == nil {
		panic("device: driver " + name + " registered twice or nil")
	}
	drivers[name] = d
}

// Drivers lists the known names, sorted.
func Drivers() []string {
	driversMu.RLock()
	defer driversMu.RUnlock()
	return slices.Sorted(maps.Keys(drivers))
}

// ErrUnknown says that no backend of this name is registered in this program.
var ErrUnknown = errors.New("unknown device")

// Open opens a device by "driver" or "driver:configuration".
func Open(name string, o Options) (Device, error) {
	driver, config, _ := strings.Cut(name, ":")
	driversMu.RLock()
	d, ok := drivers[driver]
	driversMu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("%w %q; known are %s", ErrUnknown, driver, strings.Join(Drivers(), ", "))
	}
	return d.Open(config, o)
}
