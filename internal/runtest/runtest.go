// Package runtest helps tests of runs and of what stands on them: devices and models that are closed
// when a test ends, texts to train on, and computers that have little memory left.
package runtest

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"spillway/data"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/optim"
	"spillway/rig"
	"spillway/run"
)

// Device gives a device to run on, closed when the test ends: leaks show.
func Device(t testing.TB) device.Device {
	t.Helper()
	dev := cpu.Open(cpu.Options{})
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// Machine makes a machine of a description.
func Machine(t testing.TB, description string) machine.Machine {
	t.Helper()
	m, err := machine.Parse(description)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Model opens a model, closed when the test ends.
func Model(t testing.TB, name string) *run.Model {
	t.Helper()
	m, err := run.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Optimizer reads one as people write it.
func Optimizer(t testing.TB, text string) optim.Config {
	t.Helper()
	c, err := optim.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Remaining is a computer of which only so much host memory is left.
func Remaining(t testing.TB, bytes int64) rig.System {
	t.Helper()
	bytes += int64(rig.ProgramOverhead)
	dir := t.TempDir()
	for name, text := range map[string]string{"meminfo": fmt.Sprintf("MemTotal: 16777216 kB\nMemAvailable: %d kB\n", bytes>>10), "cpuinfo": "model name: test\n"} {
		if err := vfs.WriteBytes(vfs.OS, filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return rig.System{Proc: dir, Cgroup: dir}
}

// Documents are made-up texts of different lengths, with ids below vocabulary.
func Documents(count, vocabulary int64) data.Source { return documents{count, vocabulary} }

type documents struct{ count, vocabulary int64 }

func (d documents) Len() int64 { return d.count }

func (d documents) Document(i int64) (data.Document, error) {
	list := make([]int32, 3+(i*7)%13)
	for k := range list {
		list[k] = int32((i*i + 5*int64(k)*(i+1) + int64(k*k)) % d.vocabulary)
	}
	return data.Document{Tokens: list}, nil
}

// Apart is the largest difference, relative to the largest right number.
func Apart(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var worst, top float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst, top = max(worst, d), max(top, math.Abs(float64(w)))
	}
	if top == 0 {
		return worst
	}
	return worst / top
}
