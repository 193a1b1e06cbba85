package run

import (
	"fmt"

	"spillway/dtype"
	"spillway/lora"
	"spillway/planner"
	"spillway/trace"
)

// LargestBatch plans the largest micro-batch that fits, up to a limit; the other options
// stay. Next says what one more sequence would lack, nil where the limit was reached.
func (m *Model) LargestBatch(o Options, limit int64) (r *Run, next *planner.FitError, err error) {
	return m.largest(o, func(q planner.Request) (planner.Largest, error) { return q.LargestMicroBatch(limit) })
}

// LargestSeq plans the longest sequence that fits, up to a limit.
func (m *Model) LargestSeq(o Options, limit int64) (r *Run, next *planner.FitError, err error) {
	return m.largest(o, func(q planner.Request) (planner.Largest, error) { return q.LargestSeq(limit) })
}

// FastestBatch plans the micro-batch with the most tokens per second, up to a limit: it
// doubles while that pays and fits.
func (m *Model) FastestBatch(o Options, limit int64) (r *Run, next *planner.FitError, err error) {
	return m.largest(o, func(q planner.Request) (planner.Largest, error) { return q.FastestMicroBatch(limit) })
}

func (m *Model) largest(o Options, search func(planner.Request) (planner.Largest, error)) (*Run, *planner.FitError, error) {
	var next *planner.FitError
	r, err := o.withinDriver(func(o Options) (r *Run, err error) {
		r, next, err = m.largestOnce(o, search)
		return r, err
	})
	return r, next, err
}

func (m *Model) largestOnce(o Options, search func(planner.Request) (planner.Largest, error)) (*Run, *planner.FitError, error) {
	if o.DeviceMap != nil && o.DeviceMap.Word != "" {
		return nil, nil, fmt.Errorf("looking for the size of a batch: the device map %s depends on it; name modules, or leave the map away", o.DeviceMap.Word)
	}
	q, err := m.ask(o)
	if err != nil {
		return nil, nil, err
	}
	if o.DeviceMap != nil {
		if q.notices, err = o.DeviceMap.Apply(&q.Request, q.memory); err != nil {
			return nil, nil, err
		}
	}
	l, err := search(q.Request)
	if err != nil {
		return nil, nil, err
	}
	r, err := q.run(l.Plan, l.Spec)
	return r, l.Next, err
}

// Compare plans every strategy by itself.
func (m *Model) Compare(o Options) ([]planner.Compared, error) {
	q, err := m.ask(o)
	if err != nil {
		return nil, err
	}
	return q.Compare()
}

// Standard plans the run that keeps everything on one device, whatever that takes. The
// plan has no forecast, and no evaluations: those are verified within the memory there is.
func (m *Model) Standard(o Options) (*Run, error) {
	o.Evaluates = false
	q, err := m.ask(o)
	if err != nil {
		return nil, err
	}
	p, s, err := q.Standard()
	if err != nil {
		return nil, err
	}
	return q.run(p, s)
}

// Savings plans what guides recommend when memory is short: first what everything on the
// device takes, then each saving.
func (m *Model) Savings(o Options) (planner.Usage, []planner.Saving, error) {
	o, err := o.withDefaults(m)
	if err != nil {
		return planner.Usage{}, nil, err
	}
	if o.MicroBatches == 0 { // the batch as a whole; cutting it is a saving
		o.MicroBatchSize, o.MicroBatches = o.BatchSize, 1
	}
	start := planner.Setting{Train: o.Task.Trains(), MicroBatchSize: o.MicroBatchSize, Seq: o.Seq, MicroBatches: o.MicroBatches, Precision: o.Precision, HasDisk: o.Machine.HasDisk()}
	if start.Train && len(o.Optimizer.States()) > 0 {
		start.StateType = o.Optimizer.Storage
		if start.StateType == dtype.Invalid {
			start.StateType = dtype.F32
		}
	}
	if o.adapts() {
		start.LoRARank, start.FrozenType = o.Adapters.Rank, o.Adapters.Base
	}
	return planner.Savings(start, func(s planner.Setting) (planner.Request, error) {
		q, err := m.ask(o.with(s))
		if err != nil {
			return planner.Request{}, err
		}
		return q.Request, nil
	})
}

// with is the options with the setting of a saving.
func (o Options) with(s planner.Setting) Options {
	o.Precision, o.BatchSize, o.MicroBatches, o.Optimizer.Storage = s.Precision, 0, s.MicroBatches, s.StateType
	if s.LoRARank == 0 {
		return o
	}
	if o.Adapters.Rank == 0 {
		o.Adapters = lora.Options{Targets: []string{lora.AllLinear}}
	}
	o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Base = s.LoRARank, 2*float64(s.LoRARank), s.FrozenType
	if o.Task == Train {
		o.Task = LoRA
	}
	if o.Task == LoRA && s.FrozenType != dtype.Invalid {
		o.Task = QLoRA
	}
	return o
}

// Timeline is when each instruction of an iteration will run and how long it will take,
// by the forecast.
func (r *Run) Timeline() ([]trace.Event, error) { return planner.Timeline(r.Plan, r.site) }

// TimelineByCalls is the same with programs that take what their calls do, each by itself: as plans are compared, before
// the one that was chosen is run on the device.
func (r *Run) TimelineByCalls() ([]trace.Event, error) {
	site := r.site
	site.Rehearsed = nil
	return planner.Timeline(r.Plan, site)
}
