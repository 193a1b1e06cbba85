package spillway

import (
	"fmt"

	"spillway/dtype"
	"spillway/lora"
	"spillway/planner"
)

// LargestBatch plans the largest micro-batch that fits, up to a limit; what else
// the options say stays. Next says what one more sample would lack, nil where the
// limit was reached.
func (m *Model) LargestBatch(o PlanOptions, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.LargestRows(limit) })
}

// LargestSeq plans the longest sequence that fits, up to a limit.
func (m *Model) LargestSeq(o PlanOptions, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.LargestSeq(limit) })
}

// FastestBatch plans the micro-batch with the most tokens per second, up to a
// limit: it doubles while that pays and fits.
func (m *Model) FastestBatch(o PlanOptions, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.FastestRows(limit) })
}

func (m *Model) largest(o PlanOptions, search func(planner.Request) (planner.Largest, error)) (*Job, *planner.FitError, error) {
	o = o.withDefaults(m)
	r, err := m.request(o)
	if err != nil {
		return nil, nil, err
	}
	if o.DeviceMap != nil && o.DeviceMap.Word != "" {
		return nil, nil, fmt.Errorf("looking for the size of a batch: the device map %s depends on it; name modules, or leave the map away", o.DeviceMap.Word)
	}
	notices, err := o.place(&r)
	if err != nil {
		return nil, nil, err
	}
	l, err := search(r)
	if err != nil {
		return nil, nil, err
	}
	o.Rows, o.Seq = l.Rows, l.Seq
	return &Job{Model: m, Plan: l.Plan, Spec: l.Spec, Options: o, Notices: notices}, l.Next, nil
}

// Compare plans every strategy by itself.
func (m *Model) Compare(o PlanOptions) ([]planner.Compared, error) {
	r, err := m.request(o.withDefaults(m))
	if err != nil {
		return nil, err
	}
	return r.Compare()
}

// Standard plans the job that keeps everything on one device, whatever that takes.
// The plan has no forecast.
func (m *Model) Standard(o PlanOptions) (*Job, error) {
	o = o.withDefaults(m)
	r, err := m.request(o)
	if err != nil {
		return nil, err
	}
	p, s, err := r.Standard()
	return &Job{Model: m, Plan: p, Spec: s, Options: o}, err
}

// Ladder plans what the guides recommend when memory is short, step by step: first
// what everything on the device takes, then each rung.
func (m *Model) Ladder(o PlanOptions) (planner.Taken, []planner.Rung, error) {
	o = o.withDefaults(m)
	start := planner.Setting{Train: o.Task != Infer && o.Task != Eval, Rows: o.Rows, Seq: o.Seq, Micros: o.Micros, Precision: o.Precision, HasDisk: o.Machine.HasDisk()}
	if start.Train && len(o.Optimizer.States()) > 0 {
		start.Storage = o.Optimizer.Storage
		if start.Storage == dtype.Invalid {
			start.Storage = dtype.F32
		}
	}
	if o.adapters() {
		start.Rank, start.Base = o.Adapters.Rank, o.Adapters.Base
	}
	return planner.Ladder(start, func(s planner.Setting) (planner.Request, error) { return m.request(o.with(s)) })
}

// with is the options for a setting of the ladder.
func (o PlanOptions) with(s planner.Setting) PlanOptions {
	o.Precision, o.Micros, o.Optimizer.Storage = s.Precision, s.Micros, s.Storage
	if s.Rank == 0 {
		return o
	}
	if o.Adapters.Rank == 0 {
		o.Adapters = lora.Options{Targets: []string{lora.AllLinear}}
	}
	o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Base = s.Rank, 2*float64(s.Rank), s.Base
	if o.Task == Train {
		o.Task = LoRA
	}
	if o.Task == LoRA && s.Base != dtype.Invalid {
		o.Task = QLoRA
	}
	return o
}
