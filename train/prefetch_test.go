package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/dtype"
	"spillway/lora"
	"spillway/optim"
	"spillway/planner/strategy"
	"spillway/train"
)

// choice is a plan in which everything stays on the device, or streams, and the next batch comes during an iteration
// or does not.
func choice(streams, next bool) func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(streams, streams, strategy.SaveNone, 2)(slabs, blocks)
		c.NextBatch = next
		return c
	}
}

// watched is a feed that remembers what it was asked for.
type watched struct {
	train.Feed
	asked int             // batches
	fails func(int) error // of the batch that is asked for
	back  int             // times that it went back
}

func (w *watched) Next(p train.Parts) (train.Filled, error) {
	w.asked++
	if w.fails != nil {
		if err := w.fails(w.asked); err != nil {
			return train.Filled{}, err
		}
	}
	return w.Feed.Next(p)
}

func (w *watched) Seek(at json.RawMessage) error {
	w.back++
	return w.Feed.Seek(at)
}

// Losses, weights and optimizer states are the same bits whether the next batch comes during a step or not: under clipping,
// accumulation, adapters, evaluations, fp16 whose scale changes, and weights that stream.
func TestPrefetchedBatchesChangeNoBit(t *testing.T) {
	adapters := lora.Options{Rank: 2, Alpha: 4, Targets: []string{lora.AllLinear}, Bias: lora.NoBias}
	for name, o := range map[string]spillway.Options{
		"plain":        {MicroBatchSize: 2, Packed: true},
		"clipped":      {MicroBatchSize: 2, Packed: true, Clip: 0.5},
		"accumulated":  {MicroBatchSize: 2, MicroBatches: 3, Packed: true, Clip: 1},
		"adapters":     {MicroBatchSize: 2, MicroBatches: 2, Packed: true, Task: spillway.LoRA, Adapters: adapters},
		"evaluated":    {MicroBatchSize: 2, MicroBatches: 2, Packed: true, Evaluates: true},
		"evaluated, 1": {MicroBatchSize: 2, Packed: true, Evaluates: true},
		"fp16":         {MicroBatchSize: 2, Packed: true, Precision: dtype.F16, Clip: 1},
		"compressed":   {MicroBatchSize: 2, Packed: true, StatePolicy: policy(t, "max-compression:warmup=2")},
	} {
		for _, streams := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", name, streams), func(t *testing.T) {
				var want []train.Report
				var files [2]string
				for i, next := range []bool{false, true} {
					o.Choose = choice(streams, next)
					job := plan(t, withDropout, o)
					if job.Plan.PrefetchesBatch() != next {
						t.Fatalf("the plan prefetches: %v", job.Plan.PrefetchesBatch())
					}
					files[i] = t.TempDir()
					c := train.Config{Iterations: 7, Seed: 4, Save: &train.Save{Dir: checkpoint.Dir{Path: files[i]}}}
					if o.Evaluates {
						c.Evaluate = &train.Evaluation{Every: 3, Feed: feed(t, data.Config{Seed: 3}), Batches: 2}
					}
					if o.Precision == dtype.F16 { // some steps overflow, and the scale grows again
						c.LossScale = optim.DefaultLossScale()
						c.LossScale.Scale, c.LossScale.Interval = 0x1p22, 1
					}
					var got []train.Report
					c.Report = func(r train.Report) {
						got = append(got, train.Report{Iteration: r.Iteration, Loss: r.Loss, GradNorm: r.GradNorm, EvalLoss: r.EvalLoss, LossScale: r.LossScale, Skipped: r.Skipped})
					}
					f := &watched{Feed: feed(t, data.Config{Seed: 8})}
					if _, err := train.Run(context.Background(), job, f, c); err != nil {
						t.Fatal(err)
					}
					if !next {
						want = got
					} else if !slices.Equal(got, want) {
						t.Errorf("reports %+v, want %+v", got, want)
					}
					if skips := slices.IndexFunc(got, func(r train.Report) bool { return r.Skipped }); o.Precision == dtype.F16 && (skips < 0 || !slices.ContainsFunc(got, func(r train.Report) bool { return !r.Skipped })) {
						t.Errorf("all steps overflow, or none: %+v", got)
					}
				}
				sameFiles(t, files[0], files[1])
			})
		}
	}
}

// A slow feed is known as such where its batches are made while steps run, which are done long before: what it takes
// is not taken for the step's. A tenth of a second is a hundred such steps.
func TestSlowFeedsAreReported(t *testing.T) {
	const slow = 100 * time.Millisecond
	for _, next := range []bool{false, true} {
		job := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Choose: choice(false, next)})
		f := &watched{Feed: feed(t, data.Config{Seed: 8}), fails: func(int) error { time.Sleep(slow); return nil }}
		reported := 0
		c := train.Config{Iterations: 5, Seed: 4, Report: func(r train.Report) {
			if r.FeedSeconds > r.SecondsPerIteration {
				t.Errorf("prefetched %v: step %d took %v s, its batch %v", next, r.Iteration, r.SecondsPerIteration, r.FeedSeconds)
			}
			if r.FeedSeconds >= slow.Seconds() {
				reported++
			}
		}}
		if _, err := train.Run(context.Background(), job, f, c); err != nil {
			t.Fatal(err)
		}
		if reported < 3 { // the first waits for its own in any case
			t.Errorf("prefetched %v: %d of 5 steps say that a batch took %v", next, reported, slow)
		}
	}
}

func policy(t *testing.T, text string) optim.Policy {
	t.Helper()
	p, err := optim.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sameFiles compares the last checkpoints of two runs.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(a, "step-*", "*"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d files of a checkpoint: %v", len(paths), err)
	}
	for _, path := range paths {
		if filepath.Base(path) == "manifest.json" { // it has the time
			continue
		}
		one, err1 := os.ReadFile(path)
		other, err2 := os.ReadFile(filepath.Join(b, strings.TrimPrefix(path, a)))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s differs: %v", filepath.Base(path), err)
		}
	}
}

// The next batch is asked for while a step runs: before its report, and not after the last one or before an evaluation, which
// would use its place.
func TestPrefetchedBatchesAreAskedForDuringSteps(t *testing.T) {
	job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Evaluates: true, Choose: choice(false, true)})
	f := &watched{Feed: feed(t, data.Config{Seed: 8})}
	var asked []int
	c := train.Config{Iterations: 6, Evaluate: &train.Evaluation{Every: 4, Feed: feed(t, data.Config{Seed: 3}), Batches: 1}, Report: func(train.Report) { asked = append(asked, f.asked) }}
	if _, err := train.Run(context.Background(), job, f, c); err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 3, 4, 4, 6, 6}; !slices.Equal(asked, want) || f.back != 0 {
		t.Errorf("asked for %v batches when steps ended, want %v; went back %d times", asked, want, f.back)
	}
}

// A batch that cannot be made while a step runs is no fault of that step. Its own step tries again, and meets what is wrong:
// the error, or the end.
func TestBatchesThatFailMeanwhile(t *testing.T) {
	begin := func(fails func(int) error) (*train.Trainer, *watched) {
		job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Choose: choice(false, true)})
		f := &watched{Feed: feed(t, data.Config{Seed: 8}), fails: fails}
		return trainer(t, job, f, train.Config{}), f
	}
	plain, _ := begin(nil)
	want := steps(t, plain, 4)
	for name, fails := range map[string]func(int) error{
		"once": func(n int) error { return map[int]error{3: errBroken}[n] },
		"ever": func(n int) error { return map[bool]error{true: errBroken}[n >= 3] },
		"end":  func(n int) error { return map[bool]error{true: io.EOF}[n >= 3] },
	} {
		run, f := begin(fails)
		got := steps(t, run, 2)
		r, err := run.Step()
		switch {
		case name == "once":
			got = append(append(got, r), steps(t, run, 1)...)
			if err != nil || !slices.EqualFunc(got, want, sameLoss) {
				t.Errorf("once: losses %v, want %v: %v", got, want, err)
			}
		case name == "end" && err != io.EOF, name == "ever" && (!errors.Is(err, errBroken) || !strings.Contains(err.Error(), "the batch of iteration 3")):
			t.Errorf("%s: %v", name, err)
		}
		if run.Iterations() != int64(len(got)) || f.back != 1 {
			t.Errorf("%s: %d steps are done, went back %d times", name, run.Iterations(), f.back)
		}
	}
}

func sameLoss(a, b train.Report) bool { return a.Loss == b.Loss && a.Iteration == b.Iteration }

// A run that is interrupted, at any step, goes on with the batch that had been asked for and had no step: none is left out and none
// comes twice. The feed is then where the run stopped.
func TestPrefetchedBatchesAreNotLost(t *testing.T) {
	begin := func() *spillway.Run {
		return plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Clip: 1, Choose: choice(false, true)})
	}
	whole, pieces := t.TempDir(), t.TempDir()
	c := saving(t, whole, 0)
	c.Iterations = 9
	if _, err := train.Run(context.Background(), begin(), feed(t, data.Config{Seed: 8}), c); err != nil {
		t.Fatal(err)
	}
	for _, stop := range []int64{1, 4, 6, 9} {
		ctx, cancel := context.WithCancel(context.Background())
		c := saving(t, pieces, 5)
		c.Iterations = 9
		c.Report = func(r train.Report) {
			if r.Iteration == stop {
				cancel()
			}
		}
		f, straight := feed(t, data.Config{Seed: 8}), feed(t, data.Config{Seed: 8})
		r, err := train.Run(ctx, begin(), f, c)
		if err != nil || r.Iterations != stop {
			t.Fatalf("%+v, want to be interrupted after iteration %d: %v", r, stop, err)
		}
		other := start(t, begin())
		for range stop {
			if _, err := straight.Next(train.PartsOf(other.Executor())); err != nil {
				t.Fatal(err)
			}
		}
		at, err1 := f.Position()
		want, err2 := straight.Position()
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(at, want) {
			t.Errorf("after %d steps the feed is at %s, want %s: %v", stop, at, want, err)
		}
		cancel()
	}
	last := func(dir string) string { return filepath.Join(dir, "step-00000009") }
	for _, name := range []string{"model.safetensors", checkpoint.StateName, checkpoint.TrainerName} {
		a, err1 := os.ReadFile(filepath.Join(last(whole), name))
		b, err2 := os.ReadFile(filepath.Join(last(pieces), name))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs from the undisturbed run's: %v", name, err)
		}
	}
}

// A run that ends with an error goes on from its last checkpoint, which has the batch that had been asked for then yet to come.
func TestCheckpointsHavePrefetchedBatchesToCome(t *testing.T) {
	begin := func() *spillway.Run {
		return plan(t, withDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Choose: choice(false, true)})
	}
	whole, broken := t.TempDir(), t.TempDir()
	for _, dir := range []string{whole, broken} {
		c := saving(t, dir, 2)
		c.Iterations = 9
		f := &watched{Feed: feed(t, data.Config{Seed: 8})}
		if dir == broken {
			f.fails = func(n int) error { return map[bool]error{true: errBroken}[n >= 6] }
			if r, err := train.Run(context.Background(), begin(), f, c); !errors.Is(err, errBroken) || r.Iterations != 5 {
				t.Fatalf("%+v, %v", r, err)
			}
			f = &watched{Feed: feed(t, data.Config{Seed: 8})}
		}
		if _, err := train.Run(context.Background(), begin(), f, c); err != nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, whole, broken)
}

// Another plan in the middle of a run begins with the batch that the plan before had asked for.
func TestPrefetchedBatchesOutliveTheirPlan(t *testing.T) {
	losses := func(next bool, change func(*spillway.Run)) (list []float64) {
		job := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Choose: choice(false, next)})
		_, err := train.Run(context.Background(), job, feed(t, data.Config{Seed: 8}), train.Config{Iterations: 6, Report: func(r train.Report) {
			if list = append(list, r.Loss); r.Iteration == 3 && change != nil {
				change(job)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := losses(false, nil)
	for _, next := range []bool{false, true} {
		got := losses(true, func(job *spillway.Run) {
			job.RequestReplan(func(o *spillway.Options) { o.Choose = choice(true, next) })
		})
		if !slices.Equal(got, want) {
			t.Errorf("losses %v with another plan that prefetches %v, want %v", got, next, want)
		}
	}
}
