package main

import (
	"fmt"
	"strings"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cuda"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/op"
)

// The model learns through the op, which is traced, differentiated, planned and run.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 100); err != nil {
		t.Fatal(err)
	}
	var first, last float64
	var step int
	if _, err := fmt.Sscanf(out.String(), "step %d loss %f\nstep %d loss %f", &step, &first, &step, &last); err != nil || !(last < first/4) {
		t.Errorf("printed %q (%v)", out.String(), err)
	}
}

// Its kernels pass the tests of all kernels, also on 16-bit operands: the cases come with
// the op.
func TestKernels(t *testing.T) {
	testKernels(t, cpu.Open(cpu.Options{Threads: 1}))
}

func TestKernelsOnGPU(t *testing.T) {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		t.Skip(err)
	}
	testKernels(t, d)
}

func testKernels(t *testing.T, d device.Device) {
	defer d.Close()
	tried := 0
	for _, dt := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range op.Cases(dt) {
			if c.Call.Kind != Clamp && c.Call.Kind != ClampGrad {
				continue
			}
			tried++
			if err := devicetest.Case(d, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if tried != 4 {
		t.Errorf("%d cases of the op were tried, want 4", tried)
	}
}
