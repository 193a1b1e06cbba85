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
		r := repeat{}
		for range 2 {
			r.first = pace{start: time.Now(), took: unhindered * perLaunch, n: unhindered}
			r.first.count(launches) // long after
			r.watch(1, launches, all)
		}
		if r.pays != want {
			t.Errorf("%d launches at %v in iterations of %v: repeating pays: %v", launches, perLaunch, all, r.pays)
		}
	}
	many := repeat{watched: 1, first: pace{took: time.Second, n: unhindered}}
	if many.watch(1, mostNoted+1, time.Second); many.pays {
		t.Errorf("%d launches were to be noted", mostNoted+1)
	}
	two := repeat{watched: 1, first: pace{took: time.Second, n: unhindered}}
	if two.watch(2, unhindered, time.Second); two.pays {
		t.Error("an iteration on two devices was to be noted")
	}
	once := repeat{first: pace{took: time.Second, n: 1}}
	if once.watch(1, 1, time.Second); once.pays {
		t.Error("the first iteration, which loads code, was judged")
	}
}
