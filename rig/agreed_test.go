package rig

import (
	"errors"
	"testing"
	"time"
)

// A long call runs until two of its times agree, four times at most.
func TestLongCallsAreTimedTwice(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		runs   []time.Duration // the first two, and those after
		fails  error
		want   time.Duration
		unused int
	}{
		{runs: []time.Duration{100, 102, 50}, want: 100, unused: 1},
		{runs: []time.Duration{150, 100, 103, 50}, want: 100, unused: 1},
		{runs: []time.Duration{200, 100, 150, 300, 50}, want: 100, unused: 1},
		{runs: []time.Duration{200, 100}, fails: broken},
	} {
		left := c.runs[2:]
		got, err := agreed(append([]time.Duration(nil), c.runs[:2]...), func() (took time.Duration, err error) {
			if len(left) > 0 {
				took, left = left[0], left[1:]
			}
			return took, c.fails
		})
		if got != c.want || !errors.Is(err, c.fails) || len(left) != c.unused {
			t.Errorf("%v: %v, %v, with %d runs left", c.runs, got, err, len(left))
		}
	}
}
