package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/shape"
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

	itemTime = 500 * time.Millisecond // for one item in one round
)

// Names of the items.
const (
	attentionForward = "attention forward"
	attentionBoth    = "attention with backward"
	adamItem         = "AdamW"
	stepItem         = "training iteration"
)

func matmulItem(side int64) string { return fmt.Sprintf("matmul %d³", side) }

func matmulItems() (names []string) {
	for _, side := range matmulSides {
		names = append(names, matmulItem(side))
	}
	return names
}

// bench is our side of the benchmarks.
type bench struct {
	dev   device.Device
	here  machine.Machine
	items []*CPURow
	open  []io.Closer
}

type closer func() error

func (c closer) Close() error { return c() }

func (b *bench) close() error {
	var errs []error
	for _, c := range b.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// prepare makes the rows that are wanted, each with its own memory.
func (b *bench) prepare(o Options) error {
	for _, family := range []struct {
		add   func() error
		names []string
	}{
		{b.addMatmuls, matmulItems()}, {b.addAttention, []string{attentionForward, attentionBoth}},
		{b.addAdam, []string{adamItem}}, {b.addStep, []string{stepItem}},
	} {
		if !slices.ContainsFunc(family.names, o.wants) {
			continue
		}
		if err := family.add(); err != nil {
			return err
		}
	}
	b.items = slices.DeleteFunc(b.items, func(i *CPURow) bool { return !o.wants(i.Name) })
	if len(b.items) == 0 {
		return fmt.Errorf("--only %s: no row has these words in its name", o.Only)
	}
	return nil
}

// call prepares a call with random operands.
func (b *bench) call(kind op.Kind, attr op.Attr, in ...op.Type) (*benchCall, error) {
	c, err := op.Make(kind, attr, in...)
	if err != nil {
		return nil, err
	}
	made, err := newBenchCall(b.dev, c)
	if err != nil {
		return nil, err
	}
	made.fill()
	b.open = append(b.open, closer(made.close))
	return made, nil
}

func (b *bench) addMatmuls() error {
	for _, side := range matmulSides {
		square := op.Type{DType: dtype.F32, Shape: shape.Shape{side, side}}
		c, err := b.call(op.MatMul, op.Attr{}, square, square)
		if err != nil {
			return err
		}
		flops := 2 * float64(side) * float64(side) * float64(side)
		b.items = append(b.items, &CPURow{Name: matmulItem(side), Unit: "GFLOP/s", measure: rateOf(flops, c)})
	}
	return nil
}

// rateOf measures work per second, in units of 1e9: the work of some calls over the sum of
// their best times.
func rateOf(work float64, calls ...*benchCall) func() (float64, error) {
	return func() (float64, error) {
		var sum time.Duration
		for _, c := range calls {
			best, err := c.best(itemTime)
			if err != nil {
				return 0, err
			}
			sum += best
		}
		return work / sum.Seconds() / giga, nil
	}
}

// addAttention counts as the baselines do: the half of the scores that a causal mask leaves,
// two matmuls forward and five backward.
func (b *bench) addAttention() error {
	a := op.Attr{Heads: attentionHeads, KVHeads: attentionHeads, Causal: true, Scale: 0.125}
	x := op.Type{DType: dtype.F32, Shape: shape.Shape{attentionBatch, attentionSeq, attentionHeads * attentionHead}}
	lse := op.Type{DType: dtype.F32, Shape: shape.Shape{attentionBatch, attentionHeads, attentionSeq}}
	forward, err := b.call(op.Attention, a, x, x, x)
	if err != nil {
		return err
	}
	backward, err := b.call(op.AttentionGrad, a, x, x, x, x, lse, x)
	if err != nil {
		return err
	}
	flops := 2.0 * attentionBatch * attentionHeads * attentionSeq * attentionSeq * attentionHead
	b.items = append(b.items,
		&CPURow{Name: attentionForward, Unit: "GFLOP/s", measure: rateOf(flops, forward)},
		&CPURow{Name: attentionBoth, Unit: "GFLOP/s", measure: rateOf(3.5*flops, forward, backward)})
	return nil
}

func (b *bench) addAdam() error {
	n := op.Type{DType: dtype.F32, Shape: shape.Shape{adamParams}}
	clip := op.Type{DType: dtype.F32, Shape: shape.Shape{2}}
	c, err := b.call(optim.Adam, op.Attr{}, n, n, n, n, clip)
	if err != nil {
		return err
	}
	optimizer, err := optim.Parse("adamw")
	if err != nil {
		return err
	}
	args := &op.Args{}
	if args.Scalars, err = optimizer.Scalars(1, optimizer.LR, true); err != nil {
		return err
	}
	c.launch.Args = args
	b.items = append(b.items, &CPURow{Name: adamItem, Unit: "GB/s", memory: true, measure: rateOf(adamBytes*adamParams, c)})
	return nil
}

// addStep is a whole training step, counted as the baselines do: 6 operations per param and
// token.
func (b *bench) addStep() error {
	m, err := spillway.Open(stepModel)
	if err != nil {
		return err
	}
	job, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: stepBatch, Seq: stepSeq, Machine: b.here, On: []device.Device{b.dev}})
	if err != nil {
		return err
	}
	if err := job.Start(); err != nil {
		return err
	}
	b.open = append(b.open, job)
	loader, err := data.NewLoader(randomTokens(m.Info.Vocab), data.Config{Length: stepSeq})
	if err != nil {
		return err
	}
	t, err := train.New(job, train.NewTokens(loader), train.Config{})
	if err != nil {
		return err
	}
	flops := 6 * float64(job.Spec.Count()) * stepBatch * stepSeq
	b.items = append(b.items, &CPURow{Name: stepItem, Unit: "GFLOP/s", done: job.Plan.Forecast.Flops / flops, measure: func() (float64, error) {
		best, err := bestOf(stepTries, func() error { _, err := t.Step(); return err })
		return flops / best.Seconds() / giga, err
	}})
	return nil
}

// stepTries is how many steps are timed in a round.
const stepTries = 3

// bestOf is the shortest of some runs, after one that does not count.
func bestOf(tries int, work func() error) (best time.Duration, err error) {
	for i := range tries + 1 {
		start := time.Now()
		if err := work(); err != nil {
			return 0, err
		}
		if took := time.Since(start); i == 1 || i > 1 && took < best {
			best = took
		}
	}
	return best, nil
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
