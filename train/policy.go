package train

import (
	"fmt"

	"spillway/optim"
	"spillway/plan"
	"spillway/units"
)

// optimizer is the one whose states the plan keeps now.
func (t *Trainer) optimizer() optim.Config {
	if t.compression.Active {
		return t.c.StatePolicy.Compressed(t.c.Optimizer)
	}
	return t.c.Optimizer
}

// judgePolicy asks the policy after an iteration. One that updated nothing tells it nothing.
// What it says is part of the state that becomes durable: a run that is killed before it
// followed does so when it goes on.
func (t *Trainer) askPolicy(r Report) {
	if !r.Skipped {
		t.wanted = t.c.StatePolicy.Next(t.wanted, t.done, r.Loss)
	}
}

// follow does what the policy says. What is kept then is another state of the same
// iteration.
func (t *Trainer) applyPolicy() error {
	if !t.wanted.Active || t.compression.Active {
		t.compression = t.wanted
		return nil
	}
	if err := t.compress(t.wanted); err != nil {
		return err
	}
	return t.commit()
}

// regain brings a run that is resumed to where its policy was, before its states are
// read.
func (t *Trainer) resumePolicy(was *optim.Compression) error {
	if was == nil {
		return nil
	}
	t.wanted = *was
	if was.Active && !t.compression.Active {
		return t.compress(*was)
	}
	t.compression = *was
	return nil
}

// compress goes on with a plan that keeps states in fewer bits.
func (t *Trainer) compress(next optim.Compression) error {
	if t.c.Compress == nil {
		return fmt.Errorf("policy %s compresses states after iteration %d, and the run has no way to plan again; give it one", t.c.StatePolicy, t.done)
	}
	before, was := StateBytes(t.e.Plan()), t.compression
	t.compression = next
	e, err := t.c.Compress(t.optimizer())
	if err == nil {
		err = t.Move(e)
	}
	if err != nil {
		t.compression = was
		return fmt.Errorf("compressing states after iteration %d: %w", t.done, err)
	}
	t.journaled = noneJournaled
	t.c.Notice(fmt.Sprintf("states are compressed from iteration %d on: %v instead of %v", t.done+1, units.Bytes(StateBytes(t.e.Plan())), units.Bytes(before)))
	return nil
}

// StateBytes is what a plan keeps for the optimizer besides masters, exactly.
func StateBytes(p *plan.Plan) (bytes int64) {
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			for _, state := range q.States {
				bytes += state.Bytes()
			}
		}
	}
	return bytes
}
