package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/internal/offheap"
	"spillway/internal/stopwatch"
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
	halfSuffix       = " in bf16"
)

func matmulItem(side int64) string { return fmt.Sprintf("matmul %d³", side) }

// pairsShare is the share of what a row in bf16 computes that its time at the peak counts for: CPUs that multiply pairs
// of bf16 do twice as much as in f32, which the peak is of.
func pairsShare() float64 {
	if kernel.HasPairs() {
		return 0.5
	}
	return 1
}

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
	for _, n := range matmulSides {
		half := op.Type{DType: dtype.BF16, Shape: []int64{n, n}}
		add(matmulItem(n)+halfSuffix, "GFLOP/s", 2*float64(n*n*n), call(op.MatMul, op.Attr{}, half, half))
		rows[len(rows)-1].done = pairsShare()
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

	if err = errors.Join(err, bad); err != nil {
		return nil, nil, err
	}
	var closers []func() error
	close = func() (err error) {
		for _, f := range closers {
			err = errors.Join(err, f())
		}
		return err
	}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		if !o.wants(stepName(t)) {
			continue
		}
		step, end, err := stepRow(dev, here, t)
		if err != nil {
			return nil, nil, errors.Join(err, close())
		}
		rows, closers = append(rows, step), append(closers, end)
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
		for start := stopwatch.Now(); best == 0 || stopwatch.Since(start) < itemTime; {
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

// stepName is the row of training iterations that compute in a type.
func stepName(t dtype.Type) string {
	if t == dtype.BF16 {
		return stepItem + halfSuffix
	}
	return stepItem
}

// stepRow is a whole training step that computes in a type, with weights and states in f32, counted as the baselines do: 6
// operations per param and token. The caller calls close.
func stepRow(dev device.Device, here machine.Machine, t dtype.Type) (row *CPURow, close func() error, err error) {
	m, err := spillway.Open(stepModel)
	if err != nil {
		return nil, nil, err
	}
	job, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: stepBatch, Seq: stepSeq, Precision: t, Machine: here, On: []device.Device{dev}})
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
	loop, err := train.New(job, train.NewTokens(loader), train.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, job.Close())
	}
	flops := 6 * float64(job.Spec.Count()) * stepBatch * stepSeq
	done := job.Plan.Forecast.Flops / flops
	if t == dtype.BF16 {
		done *= pairsShare()
	}
	return &CPURow{Name: stepName(t), Unit: "GFLOP/s", done: done, measure: func() (rate float64, err error) {
		for i := range stepTries {
			start := stopwatch.Now()
			if _, err := loop.Step(); err != nil {
				return 0, err
			}
			if i > 0 {
				rate = max(rate, flops/stopwatch.Since(start).Seconds()/giga)
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
		start := stopwatch.Now()
		operations := kernel.Saturate(pool, peakRounds)
		rate = max(rate, operations/stopwatch.Since(start).Seconds()/giga)
	}
	return rate
}

// memoryPeak is the memory bandwidth of all cores in GB/s, of a plain loop that reads and writes as AdamW does: the best of
// some passes over as much as that updates.
func memoryPeak() (rate float64, err error) {
	region, err := offheap.Alloc(4*4*adamParams, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, region.Free()) }()
	all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(region.Bytes()))), 4*adamParams)
	for i := range all {
		all[i] = 1 // memory that nobody has written is one page of zeros, which a cache holds
	}
	part := func(i int) []float32 { return all[i*adamParams:][:adamParams] }
	pool := kernel.NewPool(runtime.GOMAXPROCS(0))
	defer pool.Close()
	for begin := stopwatch.Now(); stopwatch.Since(begin) < itemTime; {
		start := stopwatch.Now()
		kernel.Touch(pool, part(0), part(1), part(2), part(3))
		rate = max(rate, kernel.TouchBytes*adamParams/stopwatch.Since(start).Seconds()/giga)
	}
	return rate, nil
}
