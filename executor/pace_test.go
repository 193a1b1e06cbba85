package executor

import (
	"testing"
	"time"
)

// Handing over is slow where the first launches were, not where a full queue held up the
// others: that is the device's time.
func TestRepeatingPaysWhereHandingOverIsSlow(t *testing.T) {
	const launches, perLaunch = 2000, 5 * time.Microsecond
	for all, want := range map[time.Duration]bool{12 * time.Millisecond: true, 19 * time.Millisecond: true, 21 * time.Millisecond: false, time.Second: false} {
		r := capture{}
		for range 2 {
			r.pace = pace{start: time.Now(), took: unblocked * perLaunch, n: unblocked}
			r.pace.count(launches) // long after
			r.observe(1, launches, all)
		}
		if r.pays != want {
			t.Errorf("%d launches at %v in iterations of %v: repeating pays: %v", launches, perLaunch, all, r.pays)
		}
	}
	many := capture{watched: 1, pace: pace{took: time.Second, n: unblocked}}
	if many.observe(1, maxCaptured+1, time.Second); many.pays {
		t.Errorf("%d launches were to be noted", maxCaptured+1)
	}
	two := capture{watched: 1, pace: pace{took: time.Second, n: unblocked}}
	if two.observe(2, unblocked, time.Second); two.pays {
		t.Error("an iteration on two devices was to be noted")
	}
	once := capture{pace: pace{took: time.Second, n: 1}}
	if once.observe(1, 1, time.Second); once.pays {
		t.Error("the first iteration, which loads code, was judged")
	}
}
