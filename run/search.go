package run

import (
	"errors"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner"
	"spillway/spec"
)

// search asks the planner for the fastest plan: the one of a choice that was made, or
// the best of those with the numbers of micro-batches that may be fast.
func (q *question) search() (*Run, error) {
	if q.options.Choose != nil {
		return q.chosen()
	}
	r, err := q.preferred()
	if r == nil && err == nil {
		r, err = q.fastest()
	}
	if err != nil && q.options.Strategy != "" {
		return nil, fmt.Errorf("strategy %s: %w", q.options.Strategy, err)
	}
	return r, err
}

// chosen plans the choice that was made.
func (q *question) chosen() (*Run, error) {
	q.cut(max(q.Goal.MicroBatches, 1))
	s, err := q.Trace(q.MicroBatchSize, q.Seq)
	if err != nil {
		return nil, err
	}
	p, err := planner.Build(s, q.Goal, q.Site, q.options.Choose)
	if err != nil {
		return nil, err
	}
	return q.run(p, s)
}

// cut divides the batch into so many micro-batches.
func (q *question) cut(microBatches int) {
	q.Goal.MicroBatches, q.MicroBatchSize = microBatches, q.options.BatchSize/int64(microBatches)
}

// preferred is the ZeRO-2 plan where data parallel devices are preferred and it can be
// had, else nil.
func (q *question) preferred() (*Run, error) {
	if o := q.options; !o.PreferDataParallel || o.Strategy != "" {
		return nil, nil
	}
	cuts := q.cuts()
	try := *q
	try.cut(cuts[len(cuts)-1])
	try.Goal.Constraints.Parallelism = planner.ZeRO2
	p, s, err := try.Request.Plan()
	if err != nil {
		q.notices = append(q.notices, fmt.Sprintf("data parallel devices are preferred for %s and cannot be had: %v", q.options.Task, err))
		return nil, nil
	}
	return q.run(p, s)
}

// fastest tries the numbers of micro-batches that may be fast and takes the best. If none
// fits, and the planner may choose, it takes the fewest that fit.
func (q *question) fastest() (*Run, error) {
	var best *plan.Plan
	var traced *spec.Model
	var first error
	cuts := q.cuts()
	for _, n := range cuts {
		q.cut(n)
		p, s, err := q.Request.Plan()
		if err != nil && first == nil {
			first = err
		}
		if err == nil && (best == nil || p.Forecast.StepSeconds < best.Forecast.StepSeconds) {
			best, traced = p, s
		}
	}
	if best != nil {
		return q.run(best, traced)
	}
	if fit := (*planner.FitError)(nil); q.options.MicroBatches > 0 || !errors.As(first, &fit) {
		return nil, first
	}
	for n := 2; int64(n) <= q.options.BatchSize; n++ {
		if q.options.BatchSize%int64(n) != 0 || slices.Contains(cuts, n) {
			continue
		}
		q.cut(n)
		if p, s, err := q.Request.Plan(); err == nil {
			q.notices = append(q.notices, fmt.Sprintf("batches of %d sequences are cut into %d micro-batches: %v", q.options.BatchSize, n, first))
			return q.run(p, s)
		}
	}
	return nil, first
}

// cuts lists the numbers of micro-batches worth trying: the one that is given, or one
// and, where several devices can share the work, one and two for each.
func (q *question) cuts() []int {
	o := q.options
	if o.MicroBatches > 0 {
		return []int{o.MicroBatches}
	}
	var list []int
	if by := q.Goal.Constraints.Parallelism; by == "" || by == planner.ModelParallel {
		list = []int{1}
	}
	if n := q.Site.Devices; n > 1 && (o.Strategy == "" || len(list) == 0) {
		for _, each := range []int{2, 1} {
			if o.BatchSize%int64(each*n) == 0 {
				list = append(list, each*n)
			}
		}
	}
	if len(list) == 0 {
		list = []int{1} // the planner says what is missing
	}
	return list
}
