package cpu

import (
	"strings"
	"testing"

	"spillway/device/cpu/kernel"
)

// A set of kernels that was asked for stays until all devices are closed. Who asks for none has it too; who asks for another
// one is refused, with both names.
func TestKernelSet(t *testing.T) {
	best := kernel.Name()
	defer kernel.Choose(best)
	var k kernelSet
	must(t, k.join("portable"))
	k.count()
	if kernel.Name() != "portable" || kernel.Chosen() != "portable" {
		t.Errorf("kernels of %s are in use", kernel.Name())
	}
	if best != "portable" {
		if err := k.join(best); err == nil || !strings.Contains(err.Error(), best) || !strings.Contains(err.Error(), "portable") {
			t.Errorf("another set next to the first: %v", err)
		}
	}
	k.leave()
	if kernel.Name() != "portable" {
		t.Errorf("one device is left, and kernels are those of %s", kernel.Name())
	}
	k.leave()
	if kernel.Name() != best || kernel.Chosen() != "" {
		t.Errorf("after the last device kernels are of %s, want %s", kernel.Name(), best)
	}
	if err := k.join("avx1024"); err == nil || !strings.Contains(err.Error(), strings.Join(kernel.Paths(), ", ")) {
		t.Errorf("kernels that the CPU does not have: %v", err)
	}
}

// The configuration of a device names kernels, once.
func TestConfigurationNamesKernels(t *testing.T) {
	for config, want := range map[string]Options{"avx2": {Kernels: "avx2"}, ",avx2,threads=2": {Kernels: "avx2", Threads: 2}, "threads=1,portable,portable": {Kernels: "portable", Threads: 1}} {
		if o, err := parse(config); err != nil || o != want {
			t.Errorf("%q: %+v, %v", config, o, err)
		}
	}
	for config, want := range map[string]string{"avx2,avx512": "name one", "neon": "portable, avx2, avx512", "kernels=avx2": "portable, avx2, avx512", "avx2=1": "unknown option"} {
		if _, err := parse(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
}
