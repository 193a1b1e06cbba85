package stopwatch

import (
	"testing"
	"time"
)

// The clock that Windows gives to time.Now goes on by half a millisecond at least.
func TestTicksAreShort(t *testing.T) {
	shortest := time.Duration(1 << 62)
	for range 10_000 {
		start := Now()
		took := Since(start)
		for took == 0 {
			took = Since(start)
		}
		if took < 0 {
			t.Fatalf("the clock went back by %v", -took)
		}
		shortest = min(shortest, took)
	}
	if shortest > 20*time.Microsecond {
		t.Errorf("the shortest time between two looks is %v", shortest)
	}
}

// Both clocks count the same seconds.
func TestSecondsAreSeconds(t *testing.T) {
	began, start := time.Now(), Now()
	time.Sleep(200 * time.Millisecond)
	// The outer clock is read first and last, so it counts at least as much, but for its ticks.
	ours, theirs := Since(start), time.Since(began)
	if off := theirs - ours; off < -40*time.Millisecond {
		t.Errorf("%v by the stopwatch, %v by the system's clock", ours, theirs)
	}
	if ours < 150*time.Millisecond {
		t.Errorf("%v by the stopwatch, 200 ms were slept", ours)
	}
}
