package cores

import (
	"runtime"
	"testing"
)

// Places for those who wait change nothing for those who compute, and go with the last who holds them.
func TestSpare(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	first, second := Spare(), Spare()
	if n := runtime.GOMAXPROCS(0); n != before+spare || Count() != before {
		t.Errorf("%d goroutines at once and %d that compute, there were %d", n, Count(), before)
	}
	first()
	if n := runtime.GOMAXPROCS(0); n != before+spare || Count() != before {
		t.Errorf("with one holder left %d and %d", n, Count())
	}
	second()
	if n := runtime.GOMAXPROCS(0); n != before || Count() != before {
		t.Errorf("afterwards %d and %d, want %d", n, Count(), before)
	}
}
