package spillway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spillway/internal/vfs"
	"spillway/plan"
	"spillway/planner"
	"spillway/spec"
	"spillway/store"
	"spillway/units"
)

// diskPlanName is the plan of a state on disk, beside it.
const diskPlanName = "disk-plan.json"

const maxDiskPlan = 1 << 30 // bytes

// savePlan keeps the plan for whoever goes on from the state.
func (j *Job) savePlan() error {
	path := filepath.Join(j.Options.Disk, diskPlanName)
	partial := vfs.Partial(path)
	err := vfs.WriteFile(vfs.OS, partial, func(w io.Writer) error { return j.Plan.Write(w) })
	if err == nil {
		err = vfs.OS.Rename(partial, path)
	}
	if err != nil {
		return fmt.Errorf("keeping the plan: %w", err)
	}
	return vfs.OS.SyncDir(j.Options.Disk)
}

// earlier is the plan of the training that the disk holds the state of; nil for none.
// A plan of what is free now might put things elsewhere, and the state would be lost.
func (o Options) earlier(r planner.Request) (*plan.Plan, *spec.Model, error) {
	if o.Disk == "" || !o.trains() {
		return nil, nil, nil
	}
	iteration, err := store.LastCommit(o.Disk)
	if errors.Is(err, store.ErrNoCommit) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	p, s, err := readEarlier(o.Disk, r)
	if err != nil {
		return nil, nil, fmt.Errorf("%s holds iteration %d of a training: %w", o.Disk, iteration, err)
	}
	return p, s, nil
}

func readEarlier(dir string, r planner.Request) (*plan.Plan, *spec.Model, error) {
	raw, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, diskPlanName), maxDiskPlan)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Read(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, err
	}
	s, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(sameGoal(p, s, r.Goal), fitsSite(p, r.Site)); err != nil {
		return nil, nil, err
	}
	return p, s, nil
}

// sameGoal holds a plan against what is asked for now.
func sameGoal(p *plan.Plan, s *spec.Model, g planner.Goal) error {
	const hint = "go on with the settings it had, or use another folder"
	if p.Model != s.Name || p.MicroBatchSize != s.Config.MicroBatchSize || p.Seq != s.Config.Seq || p.MicroBatches != max(g.MicroBatches, 1) || p.Optimizer == nil {
		return fmt.Errorf("it is of %s, %d × %d tokens × %d, now it is %s, %d × %d × %d: %s", p.Model, p.MicroBatchSize, p.Seq, p.MicroBatches, s.Name, s.Config.MicroBatchSize, s.Config.Seq, g.MicroBatches, hint)
	}
	have := map[string]plan.SlabParam{}
	for _, slab := range p.Slabs {
		for _, q := range slab.Params {
			have[q.Name] = q
		}
	}
	for _, q := range s.Params {
		was, ok := have[q.Name]
		decays := !q.Frozen && g.Decay != nil && g.Decay(q.Name)
		if !ok || !was.Type.Equal(q.Type) || was.Frozen() != q.Frozen || was.Decay != decays {
			return fmt.Errorf("param %s was of another type or trained otherwise: %s", q.Name, hint)
		}
	}
	if len(have) != len(s.Params) || p.Optimizer.Rule != g.Optimizer.Rule || p.Optimizer.Clip != g.Optimizer.Clip {
		return fmt.Errorf("it had %d params and the optimizer %s, now there are %d and %s: %s", len(have), p.Optimizer.Rule, len(s.Params), g.Optimizer.Rule, hint)
	}
	return nil
}

// fitsSite holds what a plan takes against what there is now.
func fitsSite(p *plan.Plan, site planner.Site) error {
	var host int64
	for _, a := range p.Arenas {
		if a.Tier == plan.OnDevice && a.Bytes > site.Budget {
			return fmt.Errorf("its plan takes %v of %s, %v are free: allow as much", units.Bytes(a.Bytes), a.Name, units.Bytes(site.Budget))
		}
		if a.Tier == plan.OnHost || a.Tier == plan.Pinned || a.Tier == plan.OnDevice && site.SharedMemory {
			host += a.Bytes
		}
	}
	if host > site.HostBudget {
		return fmt.Errorf("its plan takes %v of host memory, %v are free: allow as much", units.Bytes(host), units.Bytes(site.HostBudget))
	}
	return nil
}
