package train_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/device"
	"spillway/dtype"
	"spillway/internal/runtest"
	"spillway/lora"
	"spillway/optim"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/train"
)

// Four sequences at once or one after another train the same, dropout included: only the
// rounding of sums differs.
func TestAccumulationIsALargerBatch(t *testing.T) {
	for _, config := range []string{noDropout, withDropout} {
		var want []train.Report
		for _, micros := range []int{1, 2, 4} {
			o := spillway.Options{MicroBatchSize: int64(4 / micros), MicroBatches: micros, Packed: true, Clip: 1}
			got := steps(t, trainer(t, plan(t, config, o), feed(t, data.Config{Seed: 1}), train.Config{Seed: 9}), 10)
			if want == nil {
				want = got
			}
			for i := range got {
				if math.Abs(got[i].Loss-want[i].Loss) > 1e-5*want[i].Loss || math.Abs(got[i].GradNorm-want[i].GradNorm) > 1e-4*want[i].GradNorm {
					t.Errorf("%d micro-batches, iteration %d: loss %v and norm %v, at once %v and %v", micros, i+1, got[i].Loss, got[i].GradNorm, want[i].Loss, want[i].GradNorm)
				}
			}
		}
	}
}

func TestSeedsDecideDropout(t *testing.T) {
	loss := func(seed uint64) float64 {
		o := spillway.Options{MicroBatchSize: 2, Packed: true}
		return steps(t, trainer(t, plan(t, withDropout, o), feed(t, data.Config{}), train.Config{Seed: seed}), 1)[0].Loss
	}
	if loss(1) != loss(1) {
		t.Error("one seed gave two losses")
	}
	if loss(1) == loss(2) {
		t.Error("two seeds gave one loss")
	}
}

func TestRunsEndWithTheirData(t *testing.T) {
	job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true})
	once, err := train.Run(context.Background(), job, feed(t, data.Config{Epochs: 1}), train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := train.Run(context.Background(), job, feed(t, data.Config{Epochs: 2}), train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	// 40 documents of 3 to 15 tokens, 9 on average, in rows of 12: 30 rows and a bit.
	if once.Iterations < 14 || once.Iterations > 20 || twice.Iterations < 2*once.Iterations-1 || twice.Iterations > 2*once.Iterations {
		t.Errorf("%d iterations of two rows, %d with two epochs", once.Iterations, twice.Iterations)
	}
	if once.Interrupted || !(twice.Loss < once.Loss) {
		t.Errorf("%+v, then %+v", once, twice)
	}
}

// What is reported is what happened.
func TestReports(t *testing.T) {
	job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Clip: math.Inf(1)})
	var reports []train.Report
	_, err := train.Run(context.Background(), job, feed(t, data.Config{}), train.Config{
		Iterations: 7, ReportEvery: 3, Report: func(r train.Report) { reports = append(reports, r) },
		Schedule: optim.Schedule{Kind: optim.Linear},
	})
	if err != nil {
		t.Fatal(err)
	}
	var at []int64
	for _, r := range reports {
		at = append(at, r.Iteration)
		if want := 1e-3 * float64(8-r.Iteration) / 7; math.Abs(r.LR-want) > 1e-9 {
			t.Errorf("iteration %d: rate %v, want %v", r.Iteration, r.LR, want)
		}
		if !(r.TokensPerSecond > 0) || !(r.SecondsPerIteration > 0) || !(r.ShareOfRoofline > 0) || !(r.GradNorm > 0) || r.Iterations != 7 {
			t.Errorf("%+v", r)
		}
		if r.PredictedBytes == 0 || r.PredictedBytes != r.MeasuredBytes {
			t.Errorf("%d bytes predicted, %d measured", r.PredictedBytes, r.MeasuredBytes)
		}
		if (r.ETA == 0) != (r.Iteration == 7) {
			t.Errorf("after iteration %d %v are left", r.Iteration, r.ETA)
		}
	}
	if len(at) != 3 || at[0] != 3 || at[1] != 6 || at[2] != 7 {
		t.Errorf("reports of iterations %v, want 3, 6, 7", at)
	}
}

func TestDivergenceIsAnError(t *testing.T) {
	dir := t.TempDir()
	job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Optimizer: optimizer(t, "adamw:lr=1e30")})
	result, err := train.Run(context.Background(), job, feed(t, data.Config{}), train.Config{
		Iterations: 50, Schedule: optim.Schedule{Kind: optim.Linear, Warmup: 40},
		Save: &train.Save{Dir: checkpoint.Dir{Path: dir}, Every: 1},
	})
	var diverged *train.DivergedError
	if !errors.As(err, &diverged) {
		t.Fatalf("%v, want an error about the loss", err)
	}
	if strings.Contains(err.Error(), "norm") { // nothing asks for it, so it is not known
		t.Error(err)
	}
	if diverged.Iteration != result.Iterations+1 || diverged.Checkpoint == "" || !strings.Contains(err.Error(), diverged.Checkpoint) {
		t.Errorf("%v after %d iterations", err, result.Iterations)
	}
	c, err := checkpoint.Dir{Path: dir}.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Iteration != result.Iterations {
		t.Errorf("the last checkpoint is of iteration %d, %d were sound", c.Iteration, result.Iterations)
	}
}

func TestEvaluation(t *testing.T) {
	job := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 3, Packed: true, Evaluates: true, Optimizer: optimizer(t, "adamw:lr=0")})
	held := data.Config{Epochs: 1, InOrder: true}
	var losses []float64
	_, err := train.Run(context.Background(), job, feed(t, data.Config{}), train.Config{
		Iterations: 4, Evaluate: &train.Evaluation{Every: 2, Feed: feed(t, held)},
		Report: func(r train.Report) {
			if r.EvalLoss != 0 {
				losses = append(losses, r.EvalLoss)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 2 || losses[0] != losses[1] {
		t.Fatalf("losses %v, want twice the same: nothing is learned at rate 0", losses)
	}
	// A run of the task eval by itself gives the same bits. The mean over everything is the
	// mean of the batches, weighted by what each counts.
	for size, off := range map[int64]float64{2: 0, 1: 1e-6} {
		eval := plan(t, withDropout, spillway.Options{Task: spillway.Eval, MicroBatchSize: size, Packed: true})
		one, err := (&train.Evaluation{Feed: feed(t, held)}).Loss(start(t, eval).Executor())
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(one-losses[0]) > off*one {
			t.Errorf("by itself in batches of %d the loss is %v, next to training %v", size, one, losses[0])
		}
	}
}

// Under every limit where training works evaluations do too, with the same bits, in what
// the plan of training takes.
func TestEvaluationWithinALimit(t *testing.T) {
	o := spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Clip: 1}
	all := plan(t, withDropout, o).Plan.Peak()["device"]
	var losses []float64
	for _, budget := range []int64{0, all, all * 4 / 5, all * 3 / 5} {
		o.Budget, o.Evaluates = budget, true
		job := plan(t, withDropout, o)
		o.Evaluates = false
		if without := plan(t, withDropout, o).Plan; job.Plan.Peak()["device"] != without.Peak()["device"] || job.Plan.Strategy != without.Strategy {
			t.Errorf("%s takes %d bytes, without evaluations %s %d", job.Plan.Strategy, job.Plan.Peak()["device"], without.Strategy, without.Peak()["device"])
		}
		_, err := train.Run(context.Background(), job, feed(t, data.Config{}), train.Config{
			Iterations: 2, Evaluate: &train.Evaluation{Every: 1, Feed: feed(t, data.Config{Epochs: 1, InOrder: true})},
			Report: func(r train.Report) {
				if losses = append(losses, r.EvalLoss); r.EvalLoss == 0 {
					t.Errorf("nothing was evaluated in %d bytes", budget)
				}
				if r.MeasuredBytes != r.PredictedBytes || r.PredictedBytes != job.Plan.Peak()["device"] {
					t.Errorf("%d bytes were measured, %d predicted, the plan takes %d", r.MeasuredBytes, r.PredictedBytes, job.Plan.Peak()["device"])
				}
			},
		})
		if err != nil {
			t.Error(err)
		}
	}
	for i, loss := range losses {
		if loss != losses[i%2] {
			t.Errorf("evaluated %v, want pairs of the same", losses)
		}
	}
}

func TestRunsThatCannotStart(t *testing.T) {
	// The options of the plan, and those it is run with.
	same := func(*spillway.Options) {}
	for name, c := range map[string]struct {
		task   spillway.Task
		change func(*spillway.Options)
		c      train.Config
		says   string
	}{
		"no optimizer":    {spillway.Eval, same, train.Config{}, "plan the task train"},
		"other optimizer": {spillway.Train, func(o *spillway.Options) { o.Optimizer = optimizer(t, "sgd:momentum=0.9") }, train.Config{}, "another optimizer than sgd:momentum=0.9"},
		"no norm":         {spillway.Train, func(o *spillway.Options) { o.Clip = 1 }, train.Config{}, "computes no norm"},
		"bad rate":        {spillway.Train, func(o *spillway.Options) { o.Optimizer.LR = -1 }, train.Config{}, "lr is -1"},
		"bad schedule":    {spillway.Train, same, train.Config{Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 5}, Iterations: 3}, "total is 3"},
		"no phase":        {spillway.Train, same, train.Config{Evaluate: &train.Evaluation{}}, "plan with Options.Evaluates"},
		"negative":        {spillway.Train, same, train.Config{Iterations: -1}, "-1 iterations"},
	} {
		job := plan(t, noDropout, spillway.Options{Task: c.task, MicroBatchSize: 2, Packed: true})
		c.change(&job.Options)
		if _, err := train.New(start(t, job), feed(t, data.Config{}), c.c); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestBatchesThatCannotBe(t *testing.T) {
	unpacked := plan(t, noDropout, spillway.Options{MicroBatchSize: 2})
	packed := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true})
	strange, err := data.NewLoader(runtest.Documents(40, 1000), data.Config{Length: seq})
	if err != nil {
		t.Fatal(err)
	}
	short, err := data.NewLoader(runtest.Documents(40, 61), data.Config{Length: seq - 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		job  *spillway.Run
		feed train.Feed
		says string
	}{
		"several documents": {unpacked, feed(t, data.Config{}), "plan with Packed"},
		"unknown token":     {packed, train.NewTokens(strange), "the model knows 0 to 60; do the tokenizer and the model belong together?"},
		"other length":      {packed, train.NewTokens(short), "rows of 11"},
		"broken":            {packed, broken{}, "the disk is gone"},
	} {
		run := trainer(t, c.job, c.feed, train.Config{})
		_, err := run.Step()
		if err := c.job.Close(); err != nil {
			t.Error(err)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "iteration 1") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// However a run trains, its evaluations give the bits of a run of the task eval with the
// same weights; also after it was parked and planned again.
func TestEvaluationOfEveryRun(t *testing.T) {
	streamed := func(slabs, blocks int) strategy.Choice {
		return strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
	}
	zero3 := strategy.Constraints{Parallelism: strategy.ZeRO3}
	held := data.Config{Epochs: 1, InOrder: true}
	for name, o := range map[string]spillway.Options{
		"resident":      {Task: spillway.Train},
		"streamed":      {Task: spillway.Train, Choose: streamed, Clip: 1},
		"disk":          {Task: spillway.Train, Disk: t.TempDir(), Strategy: "disk-offload"},
		"bf16":          {Task: spillway.Train, Precision: dtype.BF16},
		"fp16":          {Task: spillway.Train, Precision: dtype.F16},
		"lora":          {Task: spillway.LoRA, Adapters: lora.Options{Rank: 4, Alpha: 8, Targets: []string{lora.AllLinear}, Dropout: 0.3}},
		"qlora":         {Task: spillway.QLoRA, Adapters: lora.Options{Rank: 4, Alpha: 8, Targets: []string{lora.AllLinear}, Base: quant.NF4}},
		"several":       {Task: spillway.Train, Constraints: zero3, On: make([]device.Device, 2)},
		"state policy":  {Task: spillway.Train, StatePolicy: optim.Policy{Warmup: 1, Codecs: "exp_avg:8bit"}},
		"compressed":    {Task: spillway.Train, Optimizer: optimizer(t, "adamw_8bit")},
		"micro-batches": {Task: spillway.Train, MicroBatches: 3},
	} {
		t.Run(name, func(t *testing.T) {
			o.MicroBatchSize, o.MicroBatches, o.Packed, o.Evaluates = 2, max(o.MicroBatches, 2), true, true
			job := plan(t, withDropout, o)
			run := trainer(t, job, feed(t, data.Config{}), train.Config{Evaluate: &train.Evaluation{Feed: feed(t, held)}})
			steps(t, run, 3)
			alone := start(t, plan(t, withDropout, spillway.Options{Task: spillway.Eval, MicroBatchSize: 2, Packed: true, Precision: o.Precision, Adapters: job.Options.Adapters}))
			check := func(after string) {
				t.Helper()
				if err := alone.CopyWeights(job); err != nil {
					t.Fatal(err)
				}
				want, err := (&train.Evaluation{Feed: feed(t, held)}).Loss(alone.Executor())
				if err != nil {
					t.Fatal(err)
				}
				got, err := (&train.Evaluation{Feed: feed(t, held)}).Loss(job.Executor())
				if err != nil || got != want {
					t.Errorf("after %s: %s evaluates %v, by itself it is %v: %v", after, job.Plan.Strategy, got, want, err)
				}
			}
			check("three iterations")
			if job.Journal() != nil {
				return
			}
			if err := errors.Join(job.Park(), job.Wake()); err != nil {
				t.Fatal(err)
			}
			check("waking")
			again := func() (*spillway.Run, error) {
				o := job.Options
				o.Choose, o.Constraints = streamed, strategy.Constraints{}
				return job.Model.Plan(job.Continued(o))
			}
			if err := job.Replan(again); err != nil && name != "disk" {
				t.Fatal(err)
			}
			steps(t, run, 1)
			check("another plan")
		})
	}
}
