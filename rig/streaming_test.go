package rig

import (
	"math"
	"testing"

	"spillway/device/cpu"
)

// A step that is put together second by second takes what the formula says.
func TestStreamingSeconds(t *testing.T) {
	s := Streaming{Copy: 20e9, Read: 36e9, CopyWith: 12e9, ReadWith: 19e9}
	for _, c := range []struct{ copied, read int64 }{{0, 36e9}, {20e9, 0}, {600e6, 2e9}, {1400e6, 2e9}, {5e9, 1e9}} {
		const tick = 1e-5
		var want float64
		for left, rest := float64(c.copied), float64(c.read); left > 0 || rest > 0; want += tick {
			switch {
			case left > 0 && rest > 0:
				left, rest = left-12e9*tick, rest-19e9*tick
			case left > 0:
				left -= 20e9 * tick
			default:
				rest -= 36e9 * tick
			}
		}
		if got := s.Seconds(c.copied, c.read); math.Abs(got-want) > 3*tick {
			t.Errorf("copying %d and reading %d bytes takes %v s, second by second %v", c.copied, c.read, got, want)
		}
	}
}

// All four rates of this computer are measured, and nothing stays allocated.
func TestMeasureStreaming(t *testing.T) {
	dev := cpu.Open(cpu.Options{})
	s, err := MeasureStreaming(dev)
	if err != nil || s.Copy <= 0 || s.Read <= 0 || s.CopyWith <= 0 || s.ReadWith <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
	t.Logf("%+v", s)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
