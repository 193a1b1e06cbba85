package train_test

import (
	"context"
	"slices"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/executor"
	"spillway/optim"
	"spillway/train"
)

func in16(t *testing.T) *spillway.Run {
	t.Helper()
	return plan(t, noDropout, spillway.Options{Precision: dtype.F16, MicroBatchSize: 2, Packed: true})
}

func scaleFrom(scale float64) train.Config {
	c := train.Config{LossScale: optim.DefaultLossScale()}
	c.LossScale.Scale = scale
	return c
}

// fitting finds the largest power of two at which the first batches do not overflow.
func fitting(t *testing.T) float64 {
	t.Helper()
	run := trainer(t, in16(t), feed(t, data.Config{Seed: 2}), scaleFrom(0x1p60))
	for range 60 {
		if r := steps(t, run, 1)[0]; !r.Skipped {
			return r.LossScale
		}
	}
	t.Fatal("gradients overflow at any scale")
	return 0
}

// Iterations whose gradients overflow change nothing but the scale: the run continues as
// one that begins there, to the bit.
func TestOverflowsAreSkipped(t *testing.T) {
	const skipped, more = 5, 6
	scale := fitting(t) / 4
	f := feed(t, data.Config{Seed: 2})
	for range skipped { // the batches of the iterations that will be skipped
		if _, err := f.Next(train.PartsOf(start(t, in16(t)).Executor())); err != nil {
			t.Fatal(err)
		}
	}
	position, err := f.Position()
	if err != nil {
		t.Fatal(err)
	}
	late := feed(t, data.Config{Seed: 2})
	if err := late.Seek(position); err != nil {
		t.Fatal(err)
	}
	want := steps(t, trainer(t, in16(t), late, scaleFrom(scale)), more)

	from := scaleFrom(scale * 0x1p40) // falls by 2^8 five times
	from.LossScale.Backoff = 0x1p-8
	run := trainer(t, in16(t), feed(t, data.Config{Seed: 2}), from)
	for i, r := range steps(t, run, skipped) {
		if !r.Skipped || r.GradNorm != 0 {
			t.Fatalf("iteration %d at a scale of %v: %+v", i+1, r.LossScale, r)
		}
	}
	for i, r := range steps(t, run, more) {
		if r.Skipped || r.Loss != want[i].Loss || r.GradNorm != want[i].GradNorm || r.LossScale != scale {
			t.Fatalf("iteration %d: %+v, without skipped ones before it %+v", skipped+i+1, r, want[i])
		}
	}
}

// A checkpoint holds the scale: a run that goes on skips and grows where the whole one
// does.
func TestLossScalesAreSaved(t *testing.T) {
	c := scaleFrom(fitting(t) * 4)
	c.LossScale.Interval = 3
	config := func(dir string, n int64, reports *[]train.Report) train.Config {
		c := c
		c.Iterations, c.Report = n, func(r train.Report) { *reports = append(*reports, r) }
		if dir != "" {
			c.Save = &train.Save{Dir: checkpoint.Dir{Path: dir}}
		}
		return c
	}
	var whole, parts []train.Report
	dir := t.TempDir()
	for _, c := range []train.Config{config("", 14, &whole), config(dir, 6, &parts), config(dir, 14, &parts)} {
		if _, err := train.Run(context.Background(), in16(t), feed(t, data.Config{Seed: 2}), c); err != nil {
			t.Fatal(err)
		}
	}
	said := func(list []train.Report) (text []any) {
		for _, r := range list {
			text = append(text, [3]any{r.Iteration, r.Loss, r.LossScale})
		}
		return text
	}
	if !slices.Equal(said(whole), said(parts)) {
		t.Errorf("in one run %v, in two %v", said(whole), said(parts))
	}
	if !slices.ContainsFunc(whole, func(r train.Report) bool { return r.Skipped }) || whole[13].LossScale == whole[3].LossScale {
		t.Errorf("nothing was skipped or grew: %v", said(whole))
	}
}

// An iteration that was skipped does not count for the learning rate, as in transformers.
func TestSkippedIterationsKeepTheRate(t *testing.T) {
	c := scaleFrom(fitting(t) * 16)
	c.Schedule = optim.Schedule{Kind: optim.Linear, Warmup: 6, Total: 20}
	job := in16(t)
	skipped := 0
	for i, r := range steps(t, trainer(t, job, feed(t, data.Config{Seed: 2}), c), 10) {
		if want := job.Options.Optimizer.LR * c.Schedule.Factor(i-skipped); r.LR != want {
			t.Errorf("step %d after %d that were skipped has the learning rate %v, want %v", i, skipped, r.LR, want)
		}
		if r.Skipped {
			skipped++
		}
	}
	if skipped == 0 {
		t.Error("none was skipped")
	}
}

// fp16 with a scaled loss, and bf16 with masters and without, end where fp32 does.
func TestHalfPrecisionsReachTheLoss(t *testing.T) {
	last := func(p dtype.Type, pure bool) (mean float64) {
		job := plan(t, noDropout, spillway.Options{Precision: p, Pure: pure, MicroBatchSize: 8, Packed: true})
		job.Options.Optimizer.LR = 3e-3
		for _, r := range steps(t, trainer(t, job, feed(t, data.Config{Seed: 2}), train.Config{}), 150)[130:] {
			mean += r.Loss / 20
		}
		return mean
	}
	want := last(dtype.F32, false)
	for name, got := range map[string]float64{"bf16": last(dtype.BF16, false), "pure bf16": last(dtype.BF16, true), "fp16": last(dtype.F16, false)} {
		if off := got/want - 1; off > 0.01 || off < -0.01 {
			t.Errorf("%s ends at %v, fp32 at %v", name, got, want)
		}
		t.Logf("%s: %v, fp32 %v", name, got, want)
	}
}

// With a norm that is NaN the weights stay as they were.
func TestDivergenceLeavesTheWeights(t *testing.T) {
	job := start(t, plan(t, noDropout, spillway.Options{Clip: 1}))
	e := job.Executor()
	run, err := train.New(job, feed(t, data.Config{Seed: 2}), train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	steps(t, run, 1)
	spoil(t, e)
	before := all(t, e)
	if _, err := run.Step(); err == nil {
		t.Fatal("no error")
	}
	if !slices.Equal(all(t, e), before) {
		t.Error("an iteration without a norm changed weights or state")
	}
}

// all is every byte of weights and state.
func all(t *testing.T, e *executor.Executor) (list []byte) {
	t.Helper()
	for _, tensor := range append(e.Weights(), e.States()...) {
		if err := e.Read(tensor, func(_ int64, chunk []byte) error { list = append(list, chunk...); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return list
}
