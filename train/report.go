package train

import (
	"math"
	"time"

	"spillway/plan"
)

// Report is what is told of an iteration.
type Report struct {
	Iteration  int64   `json:"iteration"`  // done, from 1
	Iterations int64   `json:"iterations"` // in all, 0 when not known
	Loss       float64 `json:"loss"`
	GradNorm   float64 `json:"grad_norm,omitempty"` // of the gradients before clipping; 0 when the plan computes none
	LR         float64 `json:"lr"`                  // learning rate
	EvalLoss   float64 `json:"eval_loss,omitempty"`
	Perplexity float64 `json:"eval_perplexity,omitempty"` // of the evaluation
	// LossScale of the iteration where it computes in fp16. Skipped: its gradients
	// overflowed and nothing was updated; Norm is 0 then, and Loss too if it is no number.
	LossScale float64 `json:"loss_scale,omitempty"`
	Skipped   bool    `json:"skipped,omitempty"`
	// StateBytes is what the optimizer keeps besides masters. Compressed: a policy has it
	// in fewer bits.
	StateBytes int64 `json:"state_bytes"`
	Compressed bool  `json:"compressed,omitempty"`

	// Over the iterations since the last report, batches included, evaluation and
	// saving not.
	SecondsPerIteration float64 `json:"seconds_per_iteration"`
	TokensPerSecond     float64 `json:"tokens_per_second"`
	// ShareOfBound is the time the resource that binds needs by itself, as the plan
	// forecasts it, over the time taken; 0 when the plan has no forecast.
	ShareOfRoofline float64 `json:"share_of_roofline"`

	PredictedBytes int64         `json:"predicted_bytes"` // of the devices, by the plans of training and evaluation
	MeasuredBytes  int64         `json:"measured_bytes"`  // of the devices, by their own count; 0 when not known
	ETA            time.Duration `json:"left_ns"`         // to the last iteration, 0 when not known
}

// skip notes that nothing was updated, if so.
func (r *Report) markSkipped(skipped bool) {
	if r.Skipped = skipped; !skipped {
		return
	}
	if r.GradNorm = 0; !finite(r.Loss) {
		r.Loss = 0
	}
}

var nan = math.NaN()

// perplexity is the number of tokens a model is undecided between, by its loss. One
// beyond all numbers is the greatest there is.
func perplexity(loss float64) float64 { return min(math.Exp(loss), math.MaxFloat64) }

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// complete adds what is known of time and memory.
func (t *Trainer) complete(r Report) Report {
	r.Iterations = t.c.Iterations
	seconds, tokens := t.pace.take()
	r.SecondsPerIteration, r.TokensPerSecond = seconds, tokens
	p := t.run.Plan
	if f := p.Forecast; f != nil && seconds > 0 {
		r.ShareOfRoofline = f.RooflineShare * f.StepSeconds / seconds
	}
	r.PredictedBytes, r.MeasuredBytes = p.Peak()[plan.OnDevice], t.run.Allocated()
	r.StateBytes, r.Compressed = StateBytes(p), t.compression.Active
	if v := t.c.Evaluate; v != nil {
		r.PredictedBytes += v.Run.Plan.Peak()[plan.OnDevice]
	}
	if left := t.c.Iterations - t.done; left > 0 {
		r.ETA = time.Duration(float64(left) * seconds * float64(time.Second))
	}
	return r
}

// pace adds up iterations between reports.
type pace struct {
	began      time.Time
	took       time.Duration
	tokens     int64
	iterations int64
}

func (p *pace) start() { p.began = time.Now() }

func (p *pace) stop(tokens int64) {
	p.took += time.Since(p.began)
	p.tokens += tokens
	p.iterations++
}

// take gives seconds per iteration and tokens per second, and starts over.
func (p *pace) take() (seconds, tokens float64) {
	if p.iterations > 0 && p.took > 0 {
		seconds = p.took.Seconds() / float64(p.iterations)
		tokens = float64(p.tokens) / p.took.Seconds()
	}
	*p = pace{}
	return seconds, tokens
}
