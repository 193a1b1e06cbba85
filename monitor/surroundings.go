package monitor

import (
	"fmt"
	"strings"
	"time"

	"spillway/eventlog"
	"spillway/units"
)

// surroundings is what a run shares with others: memory of the host, space on the disk, and GPUs
// whose clocks and links the driver sets.
type surroundings struct {
	step  int64
	eta   float64 // seconds
	saves int64   // checkpoints to come, 0 where none are
	keep  int64   // checkpoints that there are at most; 0 for all of them

	pressed, spaceless bool
	first              eventlog.Sample // from which the use of the disk is followed
	filling            bool
	gpus               []gpuState
}

// gpuState is what is remembered of a GPU.
type gpuState struct {
	clock, best            int // samples in a row below the best clock that was seen
	narrow                 int // samples in a row on a link with fewer lanes than it has, or slower ones
	slowClock, slowerLanes bool
}

const (
	// highPressure is the share of time in which something waits for memory.
	highPressure = 0.1
	// A clock is lowered when a busy GPU is below this share of the best that it had in the run, or
	// could have while it is hot, for some seconds.
	loweredShare, loweredFor = 0.85, 5
	// busyFrom is the share of time, in percent, from which a GPU's clock and link are those of work.
	busyFrom = 50
	// follow is how long the use of a disk is followed before it says anything.
	follow = time.Minute
)

// sampled looks at what the run shares with others. It is called from the log's goroutine.
func (r *rules) sampled(s eventlog.Sample) {
	r.mu.Lock()
	list := append(r.memory(s), r.disk(s)...)
	for i := range s.GPUs {
		list = append(list, r.gpu(i, &s.GPUs[i])...)
	}
	step := r.step
	r.mu.Unlock()
	for _, a := range list {
		a.Step = step
		r.alert(a)
	}
}

// memory looks at the host's memory.
func (r *surroundings) memory(s eventlog.Sample) (list []eventlog.Alert) {
	pressed := s.Pressure > highPressure
	if pressed && !r.pressed {
		list = append(list, eventlog.Alert{Level: eventlog.Warning, Name: "memory-pressure",
			Text: fmt.Sprintf("host memory is short: in %.0f%% of the last ten seconds something waited for it; %v are available", 100*s.Pressure, units.Bytes(s.HostAvailable))})
	}
	r.pressed = pressed
	return list
}

// disk looks whether the checkpoints to come fit, and whether somebody else fills the disk.
func (r *rules) disk(s eventlog.Sample) (list []eventlog.Alert) {
	if s.DiskFree == 0 {
		return nil
	}
	if r.checkpoint > 0 {
		need, count := r.checkpoint, max(r.saves, 1)
		if r.keep > 0 { // one more while the oldest is removed
			count = min(count, r.keep+1)
		}
		need *= count
		spaceless := s.DiskFree < need
		if spaceless && !r.spaceless {
			level, text := eventlog.Warning, fmt.Sprintf("%d checkpoints to come take %v, the disk has %v left: make space before the run ends, or --keep fewer", count, units.Bytes(need), units.Bytes(s.DiskFree))
			if s.DiskFree < r.checkpoint {
				level, text = eventlog.Serious, fmt.Sprintf("the next checkpoint takes %v, the disk has %v left: make space", units.Bytes(r.checkpoint), units.Bytes(s.DiskFree))
			}
			list = append(list, eventlog.Alert{Level: level, Name: "disk-full", Text: text})
		}
		r.spaceless = spaceless
	}
	if r.first.Time.IsZero() || s.DiskFree > r.first.DiskFree {
		r.first = s // it was emptied
		return list
	}
	took := s.Time.Sub(r.first.Time)
	rate := float64(r.first.DiskFree-s.DiskFree) / max(took.Seconds(), 1)
	filling := took >= follow && rate > 0 && r.eta > 0 && float64(s.DiskFree)/rate < r.eta
	if filling && !r.filling {
		list = append(list, eventlog.Alert{Level: eventlog.Warning, Name: "disk-filling",
			Text: fmt.Sprintf("the disk will be full in %v, before the run ends in %v: it fills by %v", time.Duration(float64(s.DiskFree)/rate)*time.Second, time.Duration(r.eta)*time.Second, units.Rate(rate))})
	}
	r.filling = filling
	return list
}

// gpu looks at the clock and the link of a GPU that works.
func (r *surroundings) gpu(i int, s *eventlog.GPUSample) (list []eventlog.Alert) {
	for len(r.gpus) <= i {
		r.gpus = append(r.gpus, gpuState{})
	}
	g := &r.gpus[i]
	if s.Busy < busyFrom {
		g.clock, g.narrow = 0, 0
		return nil
	}
	g.best = max(g.best, s.Clock)
	best := g.best
	hot := strings.Contains(strings.Join(s.Lowered, " "), "temperature") || strings.Contains(strings.Join(s.Lowered, " "), "slowdown")
	if hot { // it may have been so from the start
		best = max(best, s.ClockBest)
	}
	if low := s.Clock > 0 && float64(s.Clock) < loweredShare*float64(best); low {
		g.clock++
	} else {
		g.clock, g.slowClock = 0, false
	}
	if g.clock >= loweredFor && !g.slowClock {
		g.slowClock = true
		text := fmt.Sprintf("the clock of GPU %d is %d MHz for %d seconds, it was %d", i, s.Clock, g.clock, best)
		if len(s.Lowered) > 0 {
			text += ": lowered by " + strings.Join(s.Lowered, " and ")
		}
		if s.Temperature > 0 {
			text += fmt.Sprintf(", at %d °C", s.Temperature)
		}
		list = append(list, eventlog.Alert{Level: eventlog.Warning, Name: "clock-lowered", Text: text})
	}
	narrow := s.LinkWidth > 0 && s.LinkWidth < s.LinkBest || s.Generation > 0 && s.Generation < s.BestGen
	if g.narrow++; !narrow {
		g.narrow, g.slowerLanes = 0, false
	}
	if g.narrow >= loweredFor && !g.slowerLanes {
		g.slowerLanes = true
		list = append(list, eventlog.Alert{Level: eventlog.Warning, Name: "slow-link",
			Text: fmt.Sprintf("the link of GPU %d has fallen back to PCIe %d × %d, it can have %d × %d: look at slot, riser and power settings", i, s.Generation, s.LinkWidth, s.BestGen, s.LinkBest)})
	}
	return list
}

// placement compares what a plan moves with what counters show.
type placement struct {
	in, out   int64 // by the counters, when they were last looked at
	known     bool
	wrong     int // steps in a row
	announced bool
}

// placementSteps is how many steps in a row must differ.
const placementSteps = 5

// placed looks whether a step moved what the plan says: bytes that cross to the device and back. A
// difference means that weights are stored elsewhere than asked for. clean is false where
// something else moved bytes too, an evaluation or a checkpoint.
func (r *rules) placed(step int64, clean bool, in, out, planIn, planOut int64) {
	p := &r.placement
	moved, back, known := in-p.in, out-p.out, p.known
	p.in, p.out, p.known = in, out, true
	if !known || !clean {
		return
	}
	if near(moved, planIn) && near(back, planOut) {
		p.wrong, p.announced = 0, false
		return
	}
	if p.wrong++; p.wrong < placementSteps || p.announced {
		return
	}
	p.announced = true
	r.alert(eventlog.Alert{Step: step, Level: eventlog.Serious, Name: "placement",
		Text: fmt.Sprintf("the plan moves %v to the device and %v back in each step, counters show %v and %v: what was asked for is not where it should be", units.Bytes(planIn), units.Bytes(planOut), units.Bytes(moved), units.Bytes(back))})
}

// near says whether two numbers of bytes differ by less than a twentieth, or by a batch.
func near(a, b int64) bool {
	d := max(a-b, b-a)
	return d <= b/20 || d < 64<<10
}
