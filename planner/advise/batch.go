package advise

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/search"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// Batch is what an iteration works on: sequences that are cut into micro-batches of one size,
// which the devices share.
type Batch struct {
	Size int64 // sequences
	// MicroBatches is their number; 0 lets the planner choose.
	MicroBatches int
	// Prefer is a parallelism to take where it can be had, whatever is faster; "" for none.
	Prefer strategy.Parallelism
}

// PlanBatch plans an iteration over a batch: the fastest plan of all numbers of micro-batches
// that divide it. Where none fits, the error is a *goal.FitError about the smallest
// micro-batches. The notices say what was done otherwise than asked.
func (r Request) PlanBatch(b Batch) (p *plan.Plan, m *spec.Model, notices []string, err error) {
	if b.Prefer != "" {
		q := r
		q.Goal.Constraints.Parallelism = b.Prefer
		if p, m, notices, err = q.fastest(b); err == nil {
			return p, m, notices, nil
		}
		notices = append(notices, fmt.Sprintf("%s is preferred and cannot be had: %v", b.Prefer, err))
	}
	p, m, more, err := r.fastest(b)
	return p, m, append(notices, more...), err
}

// enough is the share of the time of the best plan so far that another number of micro-batches
// must stay below: a forecast is not exact to the last digit, and fewer are simpler.
const enough = 0.999

// within is how many times as long as the best plan so far others may take that a search of another number of micro-batches begins
// with: small changes seldom save more than a third.
const within = 1.5

// mostTried is how many micro-batches a change may have that is tried where nothing fits: plans
// of more are long.
const mostTried = 256

// mostRuns is how often the micro-batches of a batch may pass blocks, so that a search ends soon;
// where more are given, it takes its time.
const mostRuns = layout.MaxRuns / 16

// cutPatience is how many numbers of micro-batches in a row may bring nothing.
const cutPatience = 3

// cut is a batch in a number of micro-batches.
type cut struct {
	Request
	model *spec.Model
	least float64 // seconds that an iteration takes at least
}

// fastest tries numbers of micro-batches from the one that can be fastest on, as long as one may
// be faster than the best so far. Large micro-batches compute fastest; the smaller they are, the
// less memory they take and the more devices can share them.
func (r Request) fastest(b Batch) (best *plan.Plan, traced *spec.Model, notices []string, err error) {
	if n := int64(b.MicroBatches); n > 0 {
		r.Goal.MicroBatches, r.MicroBatchSize = b.MicroBatches, b.Size/n
		best, traced, err = r.inFewestRounds()
		return best, traced, nil, err
	}
	cuts, err := r.cuts(b.Size)
	if err != nil {
		return nil, nil, nil, err
	}
	var unfit, of cut // of those that do not fit, the one with the smallest micro-batches; that of the best
	worse := 0
	for _, c := range cuts {
		if best != nil && (worse == cutPatience || c.least >= enough*best.Forecast.StepSeconds) {
			break
		}
		if best != nil {
			c.Goal.Bounds.Below = within * best.Forecast.StepSeconds
		}
		p, misfit, failed := c.make()
		switch {
		case misfit && (unfit.model == nil || c.MicroBatchSize < unfit.MicroBatchSize && c.Goal.MicroBatches <= mostTried):
			unfit = c
		case failed != nil && err == nil:
			err = failed // such as a strategy that needs more micro-batches
		}
		if p != nil && (best == nil || p.Forecast.StepSeconds < enough*best.Forecast.StepSeconds) {
			best, traced, of, worse = p, c.model, c, 0
		} else {
			worse++
		}
	}
	if of.Goal.Bounds.Below > r.Goal.Bounds.Below { // what else is possible was not looked into
		of.Goal.Bounds.Below = r.Goal.Bounds.Below
		if p, err := search.Make(of.model, of.Goal, of.Site); err == nil && p.Forecast.StepSeconds <= best.Forecast.StepSeconds {
			best = p
		}
	}
	if best != nil && (unfit.model == nil || unfit.MicroBatchSize <= best.MicroBatchSize) {
		return best, traced, nil, nil
	}
	if unfit.model == nil {
		return nil, nil, nil, err
	}
	fit, failed := unfit.misfit()
	switch {
	case failed != nil:
		return nil, nil, nil, failed
	case best != nil:
		return best, traced, []string{fmt.Sprintf("batches of %d sequences are cut into %d micro-batches: with %d, the smallest plan needs %v of %s memory, %v are available",
			b.Size, best.MicroBatches, unfit.Goal.MicroBatches, units.Bytes(fit.Needed), fit.Tier, units.Bytes(fit.Budget))}, nil
	}
	if best, fit, err = unfit.inRounds(fit); best != nil || err != nil {
		return best, unfit.model, nil, err
	}
	fit.Options = unfit.options(fit)
	return nil, nil, nil, fit
}

// inFewestRounds is Plan, with micro-batches in rounds where that takes to fit.
func (r Request) inFewestRounds() (*plan.Plan, *spec.Model, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	p, err := search.Make(m, r.Goal, r.Site)
	var fit *goal.FitError
	if !errors.As(err, &fit) {
		return p, m, err
	}
	if p, fit, err = (cut{Request: r, model: m}).inRounds(fit); fit != nil {
		fit.Options = r.options(fit)
		return nil, m, fit
	}
	return p, m, err
}

// inRounds has the micro-batches of a cut, which lacks something, pass the blocks in rounds, so that fewer activations wait at
// once: in as few as fit, since weights stream once more in each. Where none fits it returns what lacks least.
func (c cut) inRounds(fit *goal.FitError) (*plan.Plan, *goal.FitError, error) {
	if c.Goal.Optimizer == nil || fit.Tier == plan.OnDisk {
		return nil, fit, nil
	}
	for rounds := 2; rounds/2 < c.Goal.MicroBatches; rounds *= 2 {
		c.Goal.Bounds.Rounds = min(rounds, c.Goal.MicroBatches)
		l, err := layout.New(c.model, c.Goal, c.Site)
		if err != nil {
			return nil, nil, err
		}
		var misfit *goal.FitError
		if may, err := search.MayFit(l); err != nil {
			return nil, nil, err
		} else if may {
			p, err := search.Make(c.model, c.Goal, c.Site)
			if !errors.As(err, &misfit) {
				return p, nil, err
			}
		} else if rounds < c.Goal.MicroBatches {
			continue
		} else if err := search.AnyFits(l); !errors.As(err, &misfit) {
			return nil, nil, err
		}
		if misfit.Tier == fit.Tier && misfit.Needed < fit.Needed {
			fit = misfit
		}
	}
	return nil, fit, nil
}

// Fits finds out whether a batch fits, in the fewest micro-batches for which a plan does, and what that plan takes. No fast plan
// is looked for, so it is much quicker than PlanBatch, and says nothing of time, nor of what is lacking.
func (r Request) Fits(b Batch) (q Request, peak map[plan.Tier]int64, err error) {
	numbers := []int64{int64(b.MicroBatches)}
	if b.MicroBatches == 0 {
		if numbers, err = r.numbers(b.Size); err != nil {
			return r, nil, err
		}
	}
	of := func(n int64) cut {
		c := cut{Request: r}
		c.Goal.MicroBatches, c.MicroBatchSize = int(n), b.Size/n
		return c
	}
	least := of(numbers[len(numbers)-1])
	few := least.few()
	if peak, err = few.smallest(); err == nil {
		for _, n := range numbers {
			c := of(n)
			if peak, err = c.smallest(); err == nil {
				return c.Request, peak, nil
			}
		}
	}
	lacks := err
	for rounds := 2; r.Goal.Optimizer != nil && rounds/2 < least.Goal.MicroBatches; rounds *= 2 {
		least.Goal.Bounds.Rounds = min(rounds, least.Goal.MicroBatches)
		if peak, err = least.smallest(); err == nil {
			return least.Request, peak, nil
		}
	}
	return r, nil, lacks
}

// errNoneFits is the answer of Fits where nothing else is wrong.
var errNoneFits = errors.New("no plan fits")

// numbers lists the numbers of micro-batches that divide a batch and whose plans are not too long, the fewest first.
func (r Request) numbers(batch int64) (list []int64, err error) {
	m, err := r.Trace(1, r.Seq)
	if err != nil {
		return nil, err
	}
	for n := int64(1); n <= batch && n*int64(len(m.Blocks)) <= mostRuns && n <= mostTried; n++ {
		if batch%n == 0 {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return []int64{1}, nil
	}
	return list, nil
}

// smallest is what the smallest plan of a cut takes, where it fits.
func (c *cut) smallest() (peak map[plan.Tier]int64, err error) {
	if c.model == nil {
		if c.model, err = c.Trace(c.MicroBatchSize, c.Seq); err != nil {
			return nil, err
		}
	}
	l, err := layout.New(c.model, c.Goal, c.Site)
	if err != nil {
		return nil, err
	}
	may, err := search.MayFit(l)
	if may && err == nil {
		peak, err = search.Fitting(l)
	}
	if peak == nil && err == nil {
		err = errNoneFits
	}
	return peak, err
}

// few is a cut with a few of its micro-batches: what does not fit with these does not with all, and is quickly found out, while
// plans of many are long.
func (c cut) few() cut {
	c.Goal.MicroBatches = min(c.Goal.MicroBatches, max(c.Site.Devices, 2))
	return c
}

// misfit is what the smallest plan of a cut lacks.
func (c cut) misfit() (*goal.FitError, error) {
	misfit, err := c.few().Shortfall()
	if misfit != nil || err != nil {
		return misfit, err
	}
	if _, err = search.Make(c.model, c.Goal, c.Site); errors.As(err, &misfit) {
		return misfit, nil
	}
	return nil, err
}

// make plans a cut, if a few of its micro-batches fit at all. Where none fits it says no more.
func (c cut) make() (p *plan.Plan, misfit bool, err error) {
	l, err := layout.New(c.few().model, c.few().Goal, c.Site)
	if err != nil {
		return nil, false, err
	}
	if may, err := search.MayFit(l); err != nil || !may {
		return nil, err == nil, err
	}
	var lacks *goal.FitError
	if err = search.AnyFits(l); err == nil {
		p, err = search.Make(c.model, c.Goal, c.Site)
	}
	switch {
	case errors.As(err, &lacks):
		return nil, true, nil
	case errors.Is(err, search.ErrSlower):
		return nil, false, nil
	}
	return p, false, err
}

// cuts lists the numbers of micro-batches that divide a batch and that a plan can have, those
// that can be fastest first.
func (r Request) cuts(batch int64) (list []cut, err error) {
	var failed error
	for n, blocks := int64(1), int64(1); n <= batch && n*blocks <= mostRuns; n++ {
		if batch%n != 0 {
			continue
		}
		c := cut{Request: r}
		c.Goal.MicroBatches, c.MicroBatchSize = int(n), batch/n
		if c.model, err = r.Trace(c.MicroBatchSize, r.Seq); err != nil {
			failed = cmp.Or(failed, err) // too large a micro-batch, perhaps
			continue
		}
		blocks = int64(len(c.model.Blocks))
		// Constraints may need several micro-batches, which the search finds out.
		free := c.Goal
		free.Constraints = strategy.Constraints{}
		l, err := layout.New(c.model, free, r.Site)
		if err != nil {
			return nil, err
		}
		if c.least, err = search.LeastSeconds(l); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, failed
	}
	slices.SortStableFunc(list, func(a, b cut) int { return cmp.Compare(a.least, b.least) })
	return list, nil
}
