package advise

import (
	"errors"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Batch is a batch that is to be cut into micro-batches.
type Batch struct {
	Size int64 // sequences
	// MicroBatches is their number; 0 lets the planner choose: as few as fit and are fast.
	MicroBatches int
	// Prefer is a parallelism to take where it can be had, whatever is faster; "" for none.
	Prefer strategy.Parallelism
}

// PlanBatch plans an iteration over a batch. It tries the numbers of micro-batches that may
// be fast and takes the fastest plan; if none fits, the fewest that fit. The notices say
// what was done otherwise than asked.
func (r Request) PlanBatch(b Batch) (p *plan.Plan, m *spec.Model, notices []string, err error) {
	cuts := r.cuts(b)
	if b.Prefer != "" {
		q := r.cut(b, cuts[len(cuts)-1])
		q.Goal.Constraints.Parallelism = b.Prefer
		if p, m, err = q.Plan(); err == nil {
			return p, m, nil, nil
		}
		notices = append(notices, fmt.Sprintf("%s is preferred and cannot be had: %v", b.Prefer, err))
	}
	if p, m, err = r.fastest(b, cuts); p != nil {
		return p, m, notices, nil
	}
	if fit := (*goal.FitError)(nil); b.MicroBatches > 0 || !errors.As(err, &fit) {
		return nil, nil, notices, err
	}
	for n := 2; int64(n) <= b.Size; n++ {
		if b.Size%int64(n) != 0 || slices.Contains(cuts, n) {
			continue
		}
		if p, m, again := r.cut(b, n).Plan(); again == nil {
			return p, m, append(notices, fmt.Sprintf("batches of %d sequences are cut into %d micro-batches: %v", b.Size, n, err)), nil
		}
	}
	return nil, nil, notices, err
}

// cut is the request for so many micro-batches.
func (r Request) cut(b Batch, microBatches int) Request {
	r.Goal.MicroBatches, r.MicroBatchSize = microBatches, b.Size/int64(microBatches)
	return r
}

// fastest is the fastest plan of some numbers of micro-batches; where none fits, the first
// error.
func (r Request) fastest(b Batch, cuts []int) (best *plan.Plan, traced *spec.Model, first error) {
	for _, n := range cuts {
		p, m, err := r.cut(b, n).Plan()
		if err != nil && first == nil {
			first = err
		}
		if err == nil && (best == nil || p.Forecast.StepSeconds < best.Forecast.StepSeconds) {
			best, traced = p, m
		}
	}
	return best, traced, first
}

// cuts lists the numbers of micro-batches worth trying: the one that is given, or one and,
// where several devices may share the work, one and two for each device.
func (r Request) cuts(b Batch) (list []int) {
	if b.MicroBatches > 0 {
		return []int{b.MicroBatches}
	}
	by := r.Goal.Constraints.Parallelism
	if by == "" || by == strategy.ModelParallel {
		list = []int{1}
	}
	if n := r.Site.Devices; n > 1 && by != strategy.ModelParallel {
		for _, each := range []int{2, 1} {
			if b.Size%int64(each*n) == 0 {
				list = append(list, each*n)
			}
		}
	}
	if len(list) == 0 {
		list = []int{1} // the planner says what is missing
	}
	return list
}
