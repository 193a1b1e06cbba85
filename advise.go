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
func (m *Model) LargestBatch(o Options, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.LargestMicroBatch(limit) })
}

// LargestSeq plans the longest sequence that fits, up to a limit.
func (m *Model) LargestSeq(o Options, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.LargestSeq(limit) })
}

// FastestBatch plans the micro-batch with the most tokens per second, up to a
// limit: it doubles while that pays and fits.
func (m *Model) FastestBatch(o Options, limit int64) (*Job, *planner.FitError, error) {
	return m.largest(o, func(r planner.Request) (planner.Largest, error) { return r.FastestMicroBatch(limit) })
}

func (m *Model) largest(o Options, search func(planner.Request) (planner.Largest, error)) (*Job, *planner.FitError, error) {
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
	o.MicroBatchSize, o.Seq = l.MicroBatchSize, l.Seq
	return &Job{Model: m, Plan: l.Plan, Spec: l.Spec, Options: o, Notices: notices}, l.Next, nil
}

// Compare plans every strategy by itself.
func (m *Model) Compare(o Options) ([]planner.Compared, error) {
	r, err := m.request(o.withDefaults(m))
	if err != nil {
		return nil, err
	}
	return r.Compare()
}

// Standard plans the job that keeps everything on one device, whatever that takes.
// The plan has no forecast.
func (m *Model) Standard(o Options) (*Job, error) {
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
func (m *Model) Savings(o Options) (planner.Usage, []planner.Saving, error) {
	o = o.withDefaults(m)
	start := planner.Setting{Train: o.Task != Infer && o.Task != Eval, MicroBatchSize: o.MicroBatchSize, Seq: o.Seq, MicroBatches: o.MicroBatches, Precision: o.Precision, HasDisk: o.Machine.HasDisk()}
	if start.Train && len(o.Optimizer.States()) > 0 {
		start.StateType = o.Optimizer.Storage
		if start.StateType == dtype.Invalid {
			start.StateType = dtype.F32
		}
	}
	if o.adapters() {
		start.LoRARank, start.FrozenType = o.Adapters.Rank, o.Adapters.Base
	}
	return planner.Savings(start, func(s planner.Setting) (planner.Request, error) { return m.request(o.with(s)) })
}

// with is the options for a setting of the ladder.
func (o Options) with(s planner.Setting) Options {
	o.Precision, o.MicroBatches, o.Optimizer.Storage = s.Precision, s.MicroBatches, s.StateType
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
