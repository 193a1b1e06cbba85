package train

import (
	"context"
	"errors"

	"spillway/run"
)

// Run starts a run, trains it to its end and closes it.
//
// If c.Save has no model files for the checkpoints, they are those of the run's model.
//
// If the devices or the host have less memory than the plan assumed, the run is planned
// again for what there is, with a notice; r.Plan is then the new plan. RequestReplan plans
// it again while it trains.
//
// If the plan stores bytes on disk, every completed iteration is durable there: a run that
// was killed resumes from the last one. A run that ends with a checkpoint leaves nothing in
// the folder.
func Run(ctx context.Context, r *run.Run, feed Feed, c Config) (result Result, err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	r.Notice = c.Notice
	if s := c.Save; s != nil {
		r.Parking = s.Dir.Path
		if !s.Claimed && s.Dir.FS == nil {
			release, claiming := s.Dir.Claim()
			if claiming != nil {
				return result, claiming
			}
			defer func() { err = errors.Join(err, release()) }()
		}
		saves := int64(1)
		if s.Every > 0 {
			saves = c.Iterations / s.Every
		}
		if s.Dir.Keep > 0 {
			saves = min(saves, int64(s.Dir.Keep)+1)
		}
		notice, err := s.Dir.CheckSpace(CheckpointBytes(r), saves)
		if err != nil {
			return result, err
		}
		if notice != "" && c.Notice != nil {
			c.Notice(notice)
		}
	}
	if err := r.Resume(); err != nil {
		return result, err
	}
	if c.Save != nil && c.Save.Model.Config == nil && c.Save.Adapter == nil {
		save := *c.Save
		if save.Model, save.Adapter, err = r.Folder(); err != nil {
			return result, err
		}
		c.Save = &save
	}
	t, err := New(r, feed, c)
	if err != nil {
		return result, err
	}
	if c.Started != nil {
		if err := c.Started(t.done); err != nil {
			return result, err
		}
	}
	if result, err = t.Run(ctx); err == nil && r.Journal() != nil && c.Save != nil {
		err = r.Journal().Discard() // the checkpoint has it
	}
	return result, err
}
