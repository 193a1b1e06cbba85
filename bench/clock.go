package bench

import (
	"fmt"
	"math"
	"time"
)

// clockOff is how much a clock may run fast or slow before a report says so, as a share of the time.
const clockOff = 0.002

// watchClock says in notes, when what it returns is called, that the clock was being set meanwhile: a virtual machine
// that was just started may run its clock some percent faster until it is right, and everything then seems to take
// longer than it does.
func watchClock(notes *[]string) func() {
	return watchClocks(notes, func() time.Duration { return time.Since(clockBegin) }, counterTime)
}

var clockBegin = time.Now()

// watchClocks compares the clock that measures with one that nobody sets; ok is false where there is none.
func watchClocks(notes *[]string, clock func() time.Duration, steady func() (t time.Duration, ok bool)) func() {
	clock0 := clock()
	steady0, ok := steady()
	return func() {
		if !ok {
			return
		}
		passed, _ := steady()
		measured, took := clock()-clock0, passed-steady0
		off := measured.Seconds()/took.Seconds() - 1
		if took < time.Second || math.Abs(off) < clockOff {
			return
		}
		how := "fast"
		if off < 0 {
			how = "slow"
		}
		*notes = append(*notes, fmt.Sprintf("the clock of this computer ran %.1f%% %s while this was measured, since it is being set; times are wrong by as much on average: measure again in some minutes", 100*math.Abs(off), how))
	}
}
