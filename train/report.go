package train

import (
	"math"
	"time"

	"spillway/internal/stopwatch"
	"spillway/plan"
)

// Report describes one iteration. In JSON an iteration is called a step, as users call
// it.
type Report struct {
	Iteration  int64   `json:"step"`      // counted from 1
	Iterations int64   `json:"max_steps"` // in all, 0 when not known
	Loss       float64 `json:"loss"`
	GradNorm   float64 `json:"grad_norm,omitempty"` // before clipping; 0 when the plan computes none
	LR         float64 `json:"lr"`
	EvalLoss   float64 `json:"eval_loss,omitempty"`
	// Perplexity is exp(EvalLoss), the number of tokens among which the model is undecided.
	Perplexity float64 `json:"eval_perplexity,omitempty"`
	// LossScale of the iteration, if it computes in fp16. Skipped says that the gradients
	// overflowed and nothing was updated; GradNorm is then 0, and so is a Loss that is NaN.
	LossScale float64 `json:"loss_scale,omitempty"`
	Skipped   bool    `json:"skipped,omitempty"`
	// StateBytes is the size of the optimizer states, without master weights. Compressed
	// says that a policy has quantized them.
	StateBytes int64 `json:"state_bytes"`
	Compressed bool  `json:"compressed,omitempty"`

	// The speed since the last report, including the making of batches, without evaluations
	// and checkpoints.
	SecondsPerIteration float64 `json:"seconds_per_step"`
	TokensPerSecond     float64 `json:"tokens_per_second"`
	// ShareOfRoofline is the time that the busiest resource needs by the plan's forecast,
	// divided by the time taken; 0 if the plan has no forecast.
	ShareOfRoofline float64 `json:"share_of_roofline"`

	PredictedBytes int64   `json:"predicted_bytes"` // of the devices, by the plan
	MeasuredBytes  int64   `json:"measured_bytes"`  // of the devices, by their own count; 0 when not known
	ETA            float64 `json:"eta_s"`           // seconds to the last iteration, 0 when not known

	Tokens      int64   `json:"tokens"`       // since the last report, without padding
	FeedSeconds float64 `json:"feed_seconds"` // of SecondsPerIteration, in which devices waited for batches to be made, or were done before one was
	Traced      bool    `json:"traced,omitempty"`
}

var nan = math.NaN()

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// complete adds speed and memory to a report.
func (t *Trainer) complete(r Report) Report {
	r.Iterations = t.c.Iterations
	r.Tokens, r.Traced = t.pace.tokens, t.traced
	if n := t.pace.iterations; n > 0 {
		r.FeedSeconds = t.pace.feeding.Seconds() / float64(n)
	}
	seconds, tokens := t.pace.take()
	r.SecondsPerIteration, r.TokensPerSecond = seconds, tokens
	p := t.run.Plan
	if f := p.Forecast; f != nil && seconds > 0 {
		r.ShareOfRoofline = f.RooflineShare * f.StepSeconds / seconds
	}
	r.PredictedBytes, r.MeasuredBytes = p.Peak()[plan.OnDevice], t.run.Allocated()
	r.StateBytes, r.Compressed = StateBytes(p), t.compression.Active
	if left := t.c.Iterations - t.done; left > 0 {
		r.ETA = float64(left) * seconds
	}
	return r
}

// pace adds up the time of iterations between reports.
type pace struct {
	began      time.Time
	took       time.Duration
	feeding    time.Duration // of took, until the batch was there
	ahead      time.Duration // that the batch of the next iteration took to make while this one ran
	madeAt     time.Time     // when that was made
	tokens     int64
	iterations int64
}

func (p *pace) start() { p.began = stopwatch.Now() }

func (p *pace) fed() { p.feeding += stopwatch.Since(p.began) }

// madeAhead counts what was begun then as the making of the next batch, while devices work.
func (p *pace) madeAhead(began time.Time) { p.madeAt = stopwatch.Now(); p.ahead = p.madeAt.Sub(began) }

// ran is called when the devices are done. Where that is as soon as the next batch is made, they were done
// before: the iteration took as long as making it.
func (p *pace) ran() {
	if stopwatch.Since(p.madeAt) < p.ahead/shortWait {
		p.feeding += p.ahead
	}
	p.ahead = 0
}

// shortWait of the time that a batch takes to make is no wait for devices: they were done already.
const shortWait = 20

func (p *pace) stop(tokens int64) {
	p.took += stopwatch.Since(p.began)
	p.tokens += tokens
	p.iterations++
}

// take returns seconds per iteration and tokens per second, and resets the sums.
func (p *pace) take() (seconds, tokens float64) {
	if p.iterations > 0 && p.took > 0 {
		seconds = p.took.Seconds() / float64(p.iterations)
		tokens = float64(p.tokens) / p.took.Seconds()
	}
	*p = pace{}
	return seconds, tokens
}
