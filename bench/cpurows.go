package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/rig"
	"spillway/train"
)

// What is measured on both sides, with the same sizes.
var matmulSides = []int64{1024, 2048}

const (
	attentionBatch = 4
	attentionHeads = 8
	attentionSeq   = 1024
	attentionHead  = 64 // elements

	adamParams = 25_000_000
	adamBytes  = 28 // moved per param: weight, gradient and moments read, weight and moments written

	stepModel = "llama-50m"
	stepBatch = 4
	stepSeq   = 256
	stepTries = 4 // steps in a round, of which the first does not count

	itemTime = 500 * time.Millisecond // for one call in one round
)

// Names of the rows.
const (
	attentionForward = "attention forward"
	attentionBoth    = "attention with backward"
	adamItem         = "AdamW"
	stepItem         = "training iteration"
)

func matmulItem(side int64) string { return fmt.Sprintf("matmul %d³", side) }

// cpuRows are the rows that are wanted. The caller calls close.
func cpuRows(dev device.Device, here machine.Machine, o Options) (rows []*CPURow, close func() error, err error) {
	add := func(name, unit string, work float64, calls ...op.Call) {
		rows = append(rows, &CPURow{Name: name, Unit: unit, memory: name == adamItem, measure: func() (float64, error) {
			took, err := bestTime(dev, calls)
			return work / took.Seconds() / giga, err
		}})
	}
	call := func(kind op.Kind, attr op.Attr, in ...op.Type) op.Call {
		c, bad := op.Make(kind, attr, in...)
		err = errors.Join(err, bad)
		return c
	}
	f32 := func(dims ...int64) op.Type { return op.Type{DType: dtype.F32, Shape: dims} }
	for _, n := range matmulSides {
		add(matmulItem(n), "GFLOP/s", 2*float64(n*n*n), call(op.MatMul, op.Attr{}, f32(n, n), f32(n, n)))
	}
	// Attention counts as the baselines do: the half of the scores that a causal mask leaves,
	// two matmuls forward and five backward.
	flops := 2.0 * attentionBatch * attentionHeads * attentionSeq * attentionSeq * attentionHead
	causal := op.Attr{Heads: attentionHeads, KVHeads: attentionHeads, Causal: true, Scale: 0.125}
	x, lse := f32(attentionBatch, attentionSeq, attentionHeads*attentionHead), f32(attentionBatch, attentionHeads, attentionSeq)
	forward, backward := call(op.Attention, causal, x, x, x), call(op.AttentionGrad, causal, x, x, x, x, lse, x)
	add(attentionForward, "GFLOP/s", flops, forward)
	add(attentionBoth, "GFLOP/s", 3.5*flops, forward, backward)
	adam, bad := rig.AdamW(adamParams)
	add(adamItem, "GB/s", adamBytes*adamParams, adam)

	close = func() error { return nil }
	if err = errors.Join(err, bad); err != nil {
		return nil, nil, err
	}
	if o.wants(stepItem) {
		var step *CPURow
		if step, close, err = stepRow(dev, here); err != nil {
			return nil, nil, err
		}
		rows = append(rows, step)
	}
	rows = slices.DeleteFunc(rows, func(r *CPURow) bool { return !o.wants(r.Name) })
	if len(rows) == 0 {
		err = fmt.Errorf("--only %s: no row has these words in its name", o.Only)
	}
	return rows, close, err
}

// bestTime is the sum of the best times of some calls.
func bestTime(dev device.Device, calls []op.Call) (sum time.Duration, err error) {
	for _, c := range calls {
		best := time.Duration(0)
		for start := time.Now(); best == 0 || time.Since(start) < itemTime; {
			took, err := rig.Time(dev, c)
			if err != nil {
				return 0, err
			}
			if best == 0 || took < best {
				best = took
			}
		}
		sum += best
	}
	return sum, nil
}

// stepRow is a whole training step, counted as the baselines do: 6 operations per param and
// token. The caller calls close.
func stepRow(dev device.Device, here machine.Machine) (row *CPURow, close func() error, err error) {
	m, err := spillway.Open(stepModel)
	if err != nil {
		return nil, nil, err
	}
	job, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: stepBatch, Seq: stepSeq, Machine: here, On: []device.Device{dev}})
	if err != nil {
		return nil, nil, err
	}
	if err := job.Start(); err != nil {
		return nil, nil, err
	}
	loader, err := data.NewLoader(randomTokens(m.Info.Vocab), data.Config{Length: stepSeq})
	if err != nil {
		return nil, nil, errors.Join(err, job.Close())
	}
	t, err := train.New(job, train.NewTokens(loader), train.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, job.Close())
	}
	flops := 6 * float64(job.Spec.Count()) * stepBatch * stepSeq
	return &CPURow{Name: stepItem, Unit: "GFLOP/s", done: job.Plan.Forecast.Flops / flops, measure: func() (rate float64, err error) {
		for i := range stepTries {
			start := time.Now()
			if _, err := t.Step(); err != nil {
				return 0, err
			}
			if i > 0 {
				rate = max(rate, flops/time.Since(start).Seconds()/giga)
			}
		}
		return rate, nil
	}}, job.Close, nil
}

// randomTokens is one long document of random tokens below the vocabulary.
type randomTokens int64

// Len is one.
func (randomTokens) Len() int64 { return 1 }

// Document has more tokens than the benchmark reads.
func (v randomTokens) Document(int64) (data.Document, error) {
	ids := make([]int32, 1<<16)
	for i := range ids {
		ids[i] = int32(op.Uniform(1, 0, uint64(i)) * float32(v))
	}
	return data.Document{Tokens: ids}, nil
}

// How the peak of the registers is measured: the best of so many tries of so many rounds.
const (
	peakTries  = 40
	peakRounds = 20_000
)

// registerPeak is the rate of multiply-adds that all cores reach in registers, in units
// of 1e9: the best of some short runs.
func registerPeak() (rate float64) {
	pool := kernel.NewPool(runtime.GOMAXPROCS(0))
	defer pool.Close()
	for range peakTries {
		start := time.Now()
		operations := kernel.Saturate(pool, peakRounds)
		rate = max(rate, operations/time.Since(start).Seconds()/giga)
	}
	return rate
}
