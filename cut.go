package spillway

import (
	"errors"
	"fmt"
	"slices"

	"spillway/planner"
	"spillway/planner/strategy"
)

// plan finds the plan for a task and batches of some sizes: into how many
// micro-batches they are cut, then everything else. Limit, if not nil, changes what
// may be used.
func (w *Wrapped) plan(task Task, s sizes, limit func(Options) (Options, error)) (*Job, error) {
	if _, err := w.trace(task); err != nil {
		return nil, err
	}
	try := func(micros int, way planner.Parallelism) (*Job, error) {
		o, err := w.options(task, s, micros)
		if way != "" {
			o.Constraints.Parallelism = way
		}
		if err == nil && limit != nil {
			o, err = limit(o)
		}
		if err != nil {
			return nil, err
		}
		return w.planned(task).Plan(o)
	}
	job, err := w.preferred(task, s, try)
	if job == nil && err == nil {
		job, err = w.fastest(s, try)
	}
	if err != nil && w.c.Strategy != "" {
		return nil, fmt.Errorf("strategy %s: %w", w.c.Strategy, err)
	}
	return job, err
}

// planned is the model that plans are made of. Weights that are only read may stay in
// the model's own files; those of others, and what is trained and moved, may not.
func (w *Wrapped) planned(task Task) *Model {
	if task != Train && w.state == nil && !w.loaded {
		return w.model
	}
	apart := *w.model
	apart.Folder = nil
	return &apart
}

// try plans for a number of micro-batches, and for a way to share the work if one is
// given.
type try func(micros int, way planner.Parallelism) (*Job, error)

// preferred is the data parallel plan where that is preferred and can be, else nil.
func (w *Wrapped) preferred(task Task, s sizes, plan try) (*Job, error) {
	if !w.c.PreferDataParallel || w.c.Strategy != "" {
		return nil, nil
	}
	cuts, err := w.cuts(s)
	if err != nil {
		return nil, err
	}
	job, err := plan(cuts[len(cuts)-1], planner.ZeRO2)
	if err != nil {
		w.notice(fmt.Sprintf("data parallel devices are preferred for %s and cannot be had: %v", task, err))
		return nil, nil
	}
	return job, nil
}

// fastest tries the cuts that can be fast and takes the best. If none fits it cuts
// further, and says so.
func (w *Wrapped) fastest(s sizes, plan try) (*Job, error) {
	cuts, err := w.cuts(s)
	if err != nil {
		return nil, err
	}
	var best *Job
	var first error
	for _, n := range cuts {
		job, err := plan(n, "")
		if err != nil && first == nil {
			first = err
		}
		if err == nil && (best == nil || job.Plan.Forecast.StepSeconds < best.Plan.Forecast.StepSeconds) {
			best = job
		}
	}
	var fit *planner.FitError
	if best != nil || w.c.MicroBatches > 0 || !errors.As(first, &fit) {
		if best != nil {
			first = nil
		}
		return best, first
	}
	return w.leanest(s, plan, cuts, first)
}

// leanest finds the fewest micro-batches that fit.
func (w *Wrapped) leanest(s sizes, plan try, tried []int, first error) (*Job, error) {
	for n := 2; int64(n) <= s.samples; n++ {
		if s.samples%int64(n) != 0 || slices.Contains(tried, n) {
			continue
		}
		if job, err := plan(n, ""); err == nil {
			w.notice(fmt.Sprintf("batches of %d samples are cut into %d micro-batches: %v", s.samples, n, first))
			return job, nil
		}
	}
	return nil, first
}

// cuts lists the numbers of micro-batches worth trying: the one that is configured, or
// one and, where several devices can share the work, one and two for each.
func (w *Wrapped) cuts(s sizes) ([]int, error) {
	if n := w.c.MicroBatches; n > 0 {
		if s.samples%int64(n) != 0 {
			return nil, fmt.Errorf("a batch of %d samples cannot be cut into %d micro-batches of one size; give a number of samples that %d divides", s.samples, n, n)
		}
		return []int{n}, nil
	}
	if w.state != nil && w.state.sizes == s { // another cut would sum in another order
		return []int{w.state.job.Plan.MicroBatches}, nil
	}
	var list []int
	if way := strategy.Demands(w.c.Strategy).Parallelism; way == "" || way == planner.ModelParallel {
		list = []int{1}
	}
	if n := len(w.devices); n > 1 && (w.c.Strategy == "" || len(list) == 0) {
		for _, per := range []int{2, 1} {
			if s.samples%int64(per*n) == 0 {
				list = append(list, per*n)
			}
		}
	}
	if len(list) == 0 {
		list = []int{1} // the planner says what is missing
	}
	return list, nil
}
