package cpu

import (
	"fmt"
	"strings"
	"sync"

	"spillway/device/cpu/kernel"
)

// kernelSet is which kernels the open devices compute with: the best set that the CPU has, or the one that somebody asked
// for, to know how a CPU without the best instructions would do. A program has one set at a time, since sizes of scratch
// memory and the order of sums depend on it, and it stays until all devices are closed.
type kernelSet struct {
	mu     sync.Mutex
	open   int    // devices
	before string // the set to return to
}

var kernels kernelSet

// join counts one more device, which asks for a set by its name, or for none.
func (k *kernelSet) join(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch now := kernel.Name(); {
	case name == "" || name == now:
	case k.open > 0:
		return fmt.Errorf("kernels of %s, and this program computes with those of %s already: name one set for all devices", name, now)
	default:
		if _, err := kernel.Choose(name); err != nil {
			return fmt.Errorf("kernels of %s, which this CPU cannot run; it has %s", name, strings.Join(kernel.Paths(), ", "))
		}
		k.before = now
	}
	k.open++
	return nil
}

// count counts one more device, which asks for no set.
func (k *kernelSet) count() { _ = k.join("") } // which is never refused

// leave says that a device is closed.
func (k *kernelSet) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open--; k.open == 0 && k.before != "" {
		_, _ = kernel.Choose(k.before) // it was in use on this CPU
		k.before = ""
	}
}
