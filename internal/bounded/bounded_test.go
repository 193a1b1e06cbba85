package bounded

import (
	"testing"
	"time"
)

// recorder takes what a check reports.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.errors++ }

var kept [][]byte

// spin computes for a while.
func spin(d time.Duration) {
	for start := threadTime(); threadTime()-start < d; {
	}
}

func TestChecksFindWhatIsTooMuch(t *testing.T) {
	hold := func(bytes int) func() {
		return func() {
			kept = append(kept, make([]byte, bytes))
			for n := looks.Load(); looking.Load() && looks.Load() < n+2; { // the next but one began after this
				time.Sleep(time.Millisecond)
			}
			kept = nil
		}
	}
	for name, c := range map[string]struct {
		size int
		do   func()
		bad  bool
	}{
		"nothing":            {0, func() {}, false},
		"little memory":      {0, hold(60 << 20), false},
		"much memory":        {0, hold(80 << 20), true},
		"for a large input":  {2 << 20, hold(80 << 20), false},
		"garbage":            {0, func() { produce(300, 1<<20) }, false},
		"waiting":            {0, func() { time.Sleep(1100 * time.Millisecond) }, false},
		"computing":          {0, func() { spin(maxTime + 100*time.Millisecond) }, true},
		"computing a little": {0, func() { spin(maxTime / 10) }, false},
	} {
		r := &recorder{TB: t}
		if Check(r, c.size, c.do); (r.errors > 0) != c.bad {
			t.Errorf("%s: %d errors, want some: %v", name, r.errors, c.bad)
		}
	}
}

// produce allocates and forgets.
func produce(times, bytes int) {
	for range times {
		kept = [][]byte{make([]byte, bytes)}
	}
	kept = nil
}
