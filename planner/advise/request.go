// Package advise answers questions about plans that take several searches: what would fit
// where nothing does, the largest or fastest micro-batch, how a batch is cut, what every
// strategy takes by itself, what each of the usual savings would bring.
//
//	r := advise.Request{Trace: trace, MicroBatchSize: 4, Seq: 2048, Goal: goal, Site: site}
//	p, model, err := r.Plan()         // a *goal.FitError names changes that fit
//	l, err := r.LargestMicroBatch(64) // 12, and what a 13th sequence would lack
//	rows, err := r.Compare()          // standard, ZeRO-1, ..., disk offload
package advise

import (
	"errors"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/search"
	"spillway/spec"
	"spillway/units"
)

// Request is a model that can be traced again for another micro-batch, so that when nothing fits
// smaller ones can be tried.
type Request struct {
	Trace               func(rows, seq int64) (*spec.Model, error)
	MicroBatchSize, Seq int64
	Goal                goal.Goal
	Site                goal.Site
	// Changes plans what would fit where nothing does, of tasks without batches; nil tries
	// smaller micro-batches, shorter sequences and so on.
	Changes func(*goal.FitError) []goal.FitOption
}

// Plan makes the plan, or a *goal.FitError whose options have all been planned and do fit.
func (r Request) Plan() (*plan.Plan, *spec.Model, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	p, err := search.Make(m, r.Goal, r.Site)
	var fit *goal.FitError
	if errors.As(err, &fit) {
		fit.Options = r.options(fit)
	}
	return p, m, err
}

// options tries changes in the order in which people like them: smaller micro-batches (the same
// batch in more of them), optimizer state in 8 bits, shorter sequences, more memory.
func (r Request) options(fit *goal.FitError) []goal.FitOption {
	var list []goal.FitOption
	if r.Changes != nil {
		return r.Changes(fit)
	}
	try := func(change string, q Request) bool {
		m, err := q.Trace(q.MicroBatchSize, q.Seq)
		if err != nil || q.Goal.MicroBatches > 1 && slices.ContainsFunc(m.Kinds, func(k spec.Kind) bool { return k.Program.WholeBatch }) {
			return false // such a batch cannot be cut
		}
		p, _, err := cut{Request: q, model: m}.make()
		if p == nil || err != nil {
			return false
		}
		list = append(list, goal.FitOption{Change: change, Peak: p.Peak(), MicroBatchSize: q.MicroBatchSize, Seq: q.Seq, MicroBatches: q.Goal.MicroBatches, Device: q.Site.Budget, Host: q.Site.HostBudget,
			Disk: q.Site.Disk.Space(q.Site.Disk.Budget)})
		list[len(list)-1].States8Bit = r.Goal.Optimizer != nil && q.Goal.Optimizer != r.Goal.Optimizer
		return true
	}
	for q := r; q.MicroBatchSize > 1 && q.Goal.MicroBatches < mostTried; {
		q.MicroBatchSize, q.Goal.MicroBatches = (q.MicroBatchSize+1)/2, max(q.Goal.MicroBatches, 1)*2
		if try(fmt.Sprintf("micro-batches of %d instead of %d", q.MicroBatchSize, r.MicroBatchSize), q) {
			break
		}
	}
	if o := r.Goal.Optimizer; o != nil && o.States8Bit != nil {
		q, coded := r, *o
		coded.States, coded.States8Bit = o.States8Bit, nil
		q.Goal.Optimizer = &coded
		try("optimizer state in 8 bits", q)
	}
	for q := r; q.Seq > 64; {
		q.Seq /= 2
		if try(fmt.Sprintf("sequences of %d instead of %d", q.Seq, r.Seq), q) {
			break
		}
	}
	if fit.Tier == plan.OnDisk {
		q := r
		q.Site.Disk.Budget = fit.Needed
		try(fmt.Sprintf("a disk with %v of free space", units.Bytes(q.Site.Disk.Space(fit.Needed))), q)
	}
	q := r
	q.Site.Budget, q.Site.Budgets = fit.DeviceNeed(), nil
	for d := range max(r.Site.Devices, 1) {
		q.Site.Budget = max(q.Site.Budget, r.Site.DeviceBudget(d))
	}
	q.Site.HostBudget = max(q.Site.HostBudget, fit.NeededHost)
	try(fmt.Sprintf("a machine with %v on %s and %v of host memory", units.Bytes(q.Site.Budget+q.Site.Context), q.Site.Device.Name, units.Bytes(q.Site.HostBudget)), q)
	return list
}
