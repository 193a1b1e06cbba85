package sim

import (
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
)

// Small kernels that are launched one by one follow each other at the pace of launches; after
// a long one they have been launched meanwhile, and captured ones need no launch.
func TestKernelsWaitForTheirLaunch(t *testing.T) {
	const us = time.Microsecond
	rates := machine.Device{Compute: machine.Compute{BF16: 1e12}, Launch: 5 * us, Kernel: 2 * us}
	long := 100 * us // 1e8 operations, in which nineteen more are launched, and its least
	for _, c := range []struct {
		name     string
		oneByOne bool
		first    int64 // side of the first matmul; 0: none
		small    int
		want     time.Duration
	}{
		{"captured", false, 0, 10, 20 * us},
		{"one by one", true, 0, 10, 50*us + 2*us},
		{"few after a long one", true, 368, 10, 5*us + long + 2*us + 20*us},
		{"many after a long one", true, 368, 99, 500*us + 2*us},
	} {
		for _, joined := range []bool{false, true} {
			v := NewVirtual(rates, dtype.BF16, 0, 256)
			v.OneByOne = c.oneByOne
			q, err := v.Queue("compute")
			if err != nil {
				t.Fatal(err)
			}
			var kernels []device.Kernel
			if c.first > 0 {
				kernels = append(kernels, kernelOf(t, v, c.first))
			}
			for range c.small {
				kernels = append(kernels, kernelOf(t, v, 1))
			}
			if joined {
				kernels = []device.Kernel{v.Join(kernels)}
			}
			for _, k := range kernels {
				if err := q.Launch(k, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Sync(); err != nil {
				t.Fatal(err)
			}
			// Joined ones are known to end no sooner than the last is launched.
			if got := v.WaitedUntil(); got > c.want+us || got < c.want-3*us {
				t.Errorf("%s, joined %v: %v, want %v", c.name, joined, got, c.want)
			}
		}
	}
}

func kernelOf(t *testing.T, v *Virtual, side int64) device.Kernel {
	t.Helper()
	k, err := v.Kernel(matmul(t, side))
	if err != nil {
		t.Fatal(err)
	}
	return k
}
