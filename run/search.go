package run

import (
	"fmt"

	"spillway/planner"
	"spillway/planner/strategy"
)

// search asks the planner for the fastest plan: the one of a choice that was made, or
// the best of those with the numbers of micro-batches that may be fast.
func (q *question) search() (*Run, error) {
	if q.options.Choose != nil {
		return q.chosen()
	}
	b := planner.Batch{Size: q.options.BatchSize, MicroBatches: q.options.MicroBatches}
	if q.options.PreferDataParallel && q.options.Strategy == "" {
		b.Prefer = strategy.ZeRO2
	}
	p, s, notices, err := q.Request.PlanBatch(b)
	q.notices = append(q.notices, notices...)
	switch {
	case err != nil && q.options.Strategy != "":
		return nil, fmt.Errorf("strategy %s: %w", q.options.Strategy, err)
	case err != nil:
		return nil, err
	}
	return q.run(p, s)
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
