package monitor

import (
	"fmt"
	"slices"
	"sync"

	"spillway/eventlog"
	"spillway/plan"
	"spillway/trace"
	"spillway/units"
)

// rules find what a person should look at. What they remember has a fixed size: an iteration
// that is as it should be allocates nothing.
type rules struct {
	alert func(eventlog.Alert)

	loss, norm window

	slow     int // iterations in a row that took longer than the forecast
	reported bool
	lane     string // the one that a trace found slowest

	saveEvery, lastSave int64
	stale               bool
	checkpoint          int64 // bytes of one

	placement placement
	mu        sync.Mutex // of surroundings, which samples change
	surroundings
}

// window are the latest numbers of a kind.
type window struct {
	list, sorted [lossWindow]float64 // a ring
	count        int
	quietTo      int64 // the step up to which no further spike is reported
}

// add adds a number, and says whether it is far above those before, with their median.
func (w *window) add(step int64, v float64) (median float64, spike bool) {
	defer func() {
		w.list[w.count%lossWindow] = v
		w.count++
	}()
	if w.count < lossWindow {
		return 0, false
	}
	const middle = lossWindow / 2
	w.sorted = w.list
	slices.Sort(w.sorted[:])
	median = w.sorted[middle]
	for i, l := range w.sorted {
		w.sorted[i] = max(l-median, median-l)
	}
	slices.Sort(w.sorted[:])
	deviation := normalDeviation * w.sorted[middle]
	if spike = v > median+spikeDeviations*deviation && v > median*(1+spikeShare) && step > w.quietTo; spike {
		w.quietTo = step + lossWindow
	}
	return median, spike
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
	// normFactor is how far above the median a gradient norm must be too: it varies more than a loss.
	normFactor = 3
)

// iteration looks at an iteration.
func (r *rules) iteration(it *eventlog.Iteration) {
	r.mu.Lock()
	r.step, r.eta = it.Step, it.ETA
	r.saves = 0
	if r.saveEvery > 0 && it.MaxSteps > 0 {
		r.saves = (it.MaxSteps - r.lastSave + r.saveEvery - 1) / r.saveEvery
	}
	r.mu.Unlock()
	r.spike(it)
	r.pace(it)
	overdue := r.saveEvery > 0 && it.Step-r.lastSave > r.saveEvery+r.saveEvery/2
	if overdue && !r.stale {
		r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Serious, Name: "stale-checkpoint", Text: fmt.Sprintf("the last checkpoint is of step %d, %d steps ago; every %d was asked for", r.lastSave, it.Step-r.lastSave, r.saveEvery)})
	}
	r.stale = overdue
}

// spike compares loss and gradient norm with those of the latest iterations. A loss that is not
// a number ends a run by itself; where it does not, that is an alert of its own.
func (r *rules) spike(it *eventlog.Iteration) {
	if it.Skipped {
		return
	}
	if it.Loss-it.Loss != 0 { // NaN or infinite
		if it.Step > r.loss.quietTo {
			r.loss.quietTo = it.Step + lossWindow
			r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Serious, Name: "loss-not-a-number", Text: fmt.Sprintf("the loss is %v: a lower --learning-rate or --max-grad-norm 1 helps; go on from the last checkpoint", it.Loss)})
		}
		return
	}
	if median, is := r.loss.add(it.Step, it.Loss); is {
		r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Warning, Name: "loss-spike",
			Text: fmt.Sprintf("loss %.4f, the median of the %d steps before is %.4f", it.Loss, lossWindow, median)})
	}
	if it.GradNorm == 0 {
		return // the plan computes none
	}
	if median, is := r.norm.add(it.Step, it.GradNorm); is && it.GradNorm > normFactor*median {
		r.alert(eventlog.Alert{Step: it.Step, Level: eventlog.Warning, Name: "grad-norm-spike",
			Text: fmt.Sprintf("gradient norm %.4g, the median of the %d steps before is %.4g", it.GradNorm, lossWindow, median)})
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
		Text: fmt.Sprintf("%d steps in a row took over %.1f × the forecast: %s, forecast %s; %s", slowSteps, slowFactor, units.Seconds(it.Seconds), units.Seconds(it.Forecast), why)})
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
		if m.Verb == trace.Move && m.Lane.Queue != string(plan.Compute) && m.Bytes >= linkBytes { // between kernels it stays on the device
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
