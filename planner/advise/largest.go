package advise

import (
	"errors"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/search"
	"spillway/spec"
)

// Largest is the largest micro-batch or sequence for which a plan fits.
type Largest struct {
	MicroBatchSize, Seq int64
	Plan                *plan.Plan
	Spec                *spec.Model
	// Next says what one more would lack; nil where the limit asked for ended the
	// search, not memory.
	Next *goal.FitError
}

// LargestMicroBatch finds the most sequences a micro-batch can have, up to a limit. If not even one
// fits the error is a *goal.FitError.
//
// Memory grows with the batch, but packing is not exactly monotone: the answer fits and the next
// larger number does not.
func (r Request) LargestMicroBatch(limit int64) (Largest, error) {
	return r.largest(limit, func(r Request, n int64) Request { r.MicroBatchSize = n; return r })
}

// LargestSeq finds the longest sequence, up to a limit.
func (r Request) LargestSeq(limit int64) (Largest, error) {
	return r.largest(limit, func(r Request, n int64) Request { r.Seq = n; return r })
}

// largest doubles until something does not fit, then bisects.
func (r Request) largest(limit int64, with func(Request, int64) Request) (Largest, error) {
	next, err := with(r, 1).Shortfall()
	if err != nil {
		return Largest{}, err
	}
	if next != nil {
		return Largest{}, next
	}
	low, high := int64(1), int64(2) // low fits; high, once next is set, does not
	for high <= limit && next == nil {
		if next, err = with(r, high).Shortfall(); err != nil {
			return Largest{}, err
		}
		if next == nil {
			low, high = high, 2*high
		}
	}
	if next == nil {
		high = max(limit, low) + 1
	}
	for high-low > 1 {
		mid := (low + high) / 2
		e, err := with(r, mid).Shortfall()
		if err != nil {
			return Largest{}, err
		}
		if e == nil {
			low = mid
		} else {
			high, next = mid, e
		}
	}
	return with(r, low).found(next)
}

// found makes the plan of the answer.
func (r Request) found(next *goal.FitError) (Largest, error) {
	p, m, err := r.Plan()
	return Largest{MicroBatchSize: r.MicroBatchSize, Seq: r.Seq, Plan: p, Spec: m, Next: next}, err
}

// Shortfall says what the smallest plan lacks, nil if it fits. It looks for no fast plan, so it is
// quick.
func (r Request) Shortfall() (*goal.FitError, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, err
	}
	b, err := layout.New(m, r.Goal, r.Site)
	if err != nil {
		return nil, err
	}
	err = search.AnyFits(b)
	var e *goal.FitError
	if errors.As(err, &e) {
		return e, nil
	}
	return nil, err
}

// fasterEnough is how much faster, per token, a larger micro-batch must be to be worth its memory.
const fasterEnough = 1.01

// FastestMicroBatch finds the micro-batch with the most tokens per second, up to a limit: it doubles
// as long as that pays and fits.
func (r Request) FastestMicroBatch(limit int64) (Largest, error) {
	r.MicroBatchSize = 1
	best, err := r.found(nil)
	if err != nil {
		return best, err
	}
	for n := int64(2); n <= limit; n *= 2 {
		q := r
		q.MicroBatchSize = n
		if e, err := q.Shortfall(); err != nil || e != nil {
			best.Next = e
			return best, err
		}
		more, err := q.found(nil)
		if err != nil {
			return best, err
		}
		if more.Plan.Forecast.TokensPerSec < fasterEnough*best.Plan.Forecast.TokensPerSec {
			return best, nil
		}
		best = more
	}
	return best, nil
}
