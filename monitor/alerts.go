package monitor

import (
	"fmt"
	"slices"
	"sync"

	"spillway/eventlog"
	"spillway/trace"
	"spillway/units"
)

// rules find what a person should look at. What they remember has a fixed size: an iteration
// that is as it should be allocates nothing.
type rules struct {
	alert func(eventlog.Alert)

	losses  [lossWindow]float64 // of the latest iterations, a ring
	sorted  [lossWindow]float64
	count   int
	quietTo int64 // the step up to which no further spike is reported

	slow     int // iterations in a row that took longer than the forecast
	reported bool
	lane     string // the one that a trace found slowest

	saveEvery, lastSave int64
	stale               bool
	checkpoint          int64 // bytes of one

	mu                 sync.Mutex // of what follows, which samples change
	step               int64
	pressed, spaceless bool
}

const (
	lossWindow = 64
	// A loss is a spike from so many median absolute deviations above the median on, where it
	// is also a twentieth above it: losses that hardly change deviate by nothing.
	spikeDeviations, spikeShare = 6, 0.05
	normalDeviation             = 1.4826 // standard deviations in a median absolute one
	// Steps are slow when so many in a row take this much longer than forecast. Forecasts of
	// very short ones do not count what the system does now and then.
	slowSteps, slowFactor, shortStep = 20, 1.1, 5e-3
	// linkFactor is how much longer than forecast the copies of a lane take together to be
	// worth an alert; copies below linkBytes are left out.
	linkFactor, linkBytes = 1.25, 1 << 20
	// highPressure is the share of time in which something waits for memory.
	highPressure = 0.1
)

// iteration looks at an iteration.
func (r *rules) iteration(it *eventlog.Iteration) {
	r.mu.Lock()
	r.step = it.Step
	r.mu.Unlock()
	r.spike(it)
	r.pace(it)
	overdue := r.saveEvery > 0 && it.Step-r.lastSave > r.saveEvery+r.saveEvery/2
	if overdue && !r.stale {
		r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Serious, Name: "stale-checkpoint", Text: fmt.Sprintf("the last checkpoint is of step %d, %d steps ago; every %d was asked for", r.lastSave, it.Step-r.lastSave, r.saveEvery)})
	}
	r.stale = overdue
}

// spike compares the loss with those of the latest iterations.
func (r *rules) spike(it *eventlog.Iteration) {
	if it.Skipped {
		return
	}
	defer func() {
		r.losses[r.count%lossWindow] = it.Loss
		r.count++
	}()
	if r.count < lossWindow {
		return
	}
	const middle = lossWindow / 2
	r.sorted = r.losses
	slices.Sort(r.sorted[:])
	median := r.sorted[middle]
	for i, l := range r.sorted {
		r.sorted[i] = max(l-median, median-l)
	}
	slices.Sort(r.sorted[:])
	deviation := normalDeviation * r.sorted[middle]
	if it.Loss > median+spikeDeviations*deviation && it.Loss > median*(1+spikeShare) && it.Step > r.quietTo {
		r.quietTo = it.Step + lossWindow
		r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Warning, Name: "loss-spike",
			Text: fmt.Sprintf("loss %.4f, the median of the %d steps before is %.4f", it.Loss, lossWindow, median)})
	}
}

// pace compares the time of an iteration with the forecast.
func (r *rules) pace(it *eventlog.Iteration) {
	if it.Forecast < shortStep || it.Traced {
		return
	}
	if it.Seconds <= slowFactor*it.Forecast {
		r.slow, r.reported = 0, false
		return
	}
	if r.slow++; r.slow < slowSteps || r.reported {
		return
	}
	r.reported = true
	why := "by the forecast it is limited by " + it.Bound.String()
	if it.FeedSeconds > (it.Seconds-it.Forecast)/2 {
		why = fmt.Sprintf("making the batch takes %.0f%% of it", 100*it.FeedSeconds/it.Seconds)
	} else if r.lane != "" {
		why = "most of the difference is on " + r.lane
	}
	r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Warning, Name: "slower-than-forecast",
		Text: fmt.Sprintf("%d steps in a row took over %.1f × the forecast: %.4g s, forecast %.4g s; %s", slowSteps, slowFactor, it.Seconds, it.Forecast, why)})
}

// traced compares a trace with the forecast's, instruction by instruction.
func (r *rules) traced(step int64, measured, forecast []trace.Event) {
	if len(forecast) != len(measured) {
		return
	}
	type sums struct{ measured, forecast, bytes int64 }
	lanes, links := map[trace.Lane]sums{}, map[trace.Lane]sums{}
	for i := range measured {
		m, f := &measured[i], &forecast[i]
		if m.Verb == trace.Free {
			continue
		}
		s := lanes[m.Lane]
		lanes[m.Lane] = sums{s.measured + m.End - m.Start, s.forecast + f.End - f.Start, 0}
		if m.Verb == trace.Move && m.Bytes >= linkBytes {
			s := links[m.Lane]
			links[m.Lane] = sums{s.measured + m.End - m.Start, s.forecast + f.End - f.Start, s.bytes + m.Bytes}
		}
	}
	var most int64
	r.lane = ""
	for lane, s := range lanes {
		if late := s.measured - s.forecast; late > most || late == most && late > 0 && laneName(lane) < r.lane {
			most, r.lane = late, laneName(lane)
		}
	}
	for lane, s := range links {
		if s.forecast > 0 && float64(s.measured) > linkFactor*float64(s.forecast) {
			rate := func(ns int64) units.Rate { return units.Rate(float64(s.bytes) / (float64(ns) / 1e9)) }
			r.alert(eventlog.Alert{Step: step, Level: eventlog.Warning, Name: "slow-link",
				Text: fmt.Sprintf("copies on %s reach %v, the forecast has %v", laneName(lane), rate(s.measured), rate(s.forecast))})
		}
	}
}

func laneName(l trace.Lane) string { return l.Device + " " + l.Queue }

// sampled looks at the memory of the host and the disk.
func (r *rules) sampled(s eventlog.Sample) {
	r.mu.Lock()
	step := r.step
	pressed := s.Pressure > highPressure
	spaceless := s.DiskFree > 0 && r.checkpoint > 0 && s.DiskFree < r.checkpoint
	newlyPressed, newlySpaceless := pressed && !r.pressed, spaceless && !r.spaceless
	r.pressed, r.spaceless = pressed, spaceless
	r.mu.Unlock()
	if newlyPressed {
		r.alert(eventlog.Alert{Step: step, Level: eventlog.Warning, Name: "memory-pressure",
			Text: fmt.Sprintf("host memory is short: in %.0f%% of the last ten seconds something waited for it; %v are available", 100*s.Pressure, units.Bytes(s.HostAvailable))})
	}
	if newlySpaceless {
		r.alert(eventlog.Alert{Step: step, Level: eventlog.Serious, Name: "disk-full",
			Text: fmt.Sprintf("the next checkpoint takes %v, the disk has %v left: make space before the run ends", units.Bytes(r.checkpoint), units.Bytes(s.DiskFree))})
	}
}
