package finetune

import (
	"fmt"
	"path/filepath"

	"spillway"
	"spillway/plan"
	"spillway/recipe"
	"spillway/view"
)

// Replan makes the plan that a run would have with another limit of device memory, in bytes: of
// the model and the settings in the run's folder, for the machine that its event log has. Nothing
// is loaded and no device is opened, so that it disturbs nobody. A limit that is too small is a
// planner.FitError.
func Replan(dir string, memory int64) (*plan.Plan, error) {
	recorded, err := view.Open(dir)
	if err != nil {
		return nil, err
	}
	defer recorded.Close() // opened for reading
	was, err := recorded.Plan()
	if err != nil {
		return nil, err
	}
	if was == nil {
		return nil, fmt.Errorf("the event log in %s has no plan yet", dir)
	}
	r := recipe.New()
	if err := r.Read(filepath.Join(dir, recipe.RunName)); err != nil {
		return nil, fmt.Errorf("reading the settings of the run: %w", err)
	}
	m, err := recorded.On()
	if err != nil {
		return nil, err
	}
	model, err := spillway.Open(r.Model)
	if err != nil {
		return nil, err
	}
	defer model.Close() // opened for reading
	if r.Disk == "" {
		m.Disk.Free = 0 // the run was given no folder on it
	}
	run := &Run{Recipe: r, Model: model}
	o, _, err := run.optionsOn(m, nil)
	if run.adapter != nil {
		defer run.adapter.Close() // opened for reading
	}
	if err != nil {
		return nil, err
	}
	o.MaxMemory, o.Document = fmt.Sprintf("%dB", memory), was.Document
	o.BatchSize, o.MicroBatchSize, o.MicroBatches, o.Seq = was.MicroBatchSize*int64(was.MicroBatches), 0, 0, was.Seq
	job, err := model.Plan(o)
	if err != nil {
		return nil, err
	}
	return job.Plan, nil
}
