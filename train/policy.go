package train

import (
	"fmt"

	"spillway/optim"
	"spillway/plan"
	"spillway/units"
)

// applyPolicy compresses the states if the policy says so. The journal then gets a
// second state of the same iteration.
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

// resumePolicy brings a resumed run to where its policy was, before its states are
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

// compress continues with a plan that has quantized states.
func (t *Trainer) compress(next optim.Compression) error {
	before := StateBytes(t.run.Plan)
	if err := t.run.Compress(); err != nil {
		return fmt.Errorf("compressing states after iteration %d: %w", t.done, err)
	}
	t.compression, t.journaled = next, noneJournaled
	t.c.Notice(fmt.Sprintf("states are compressed from iteration %d on: %v instead of %v", t.done+1, units.Bytes(StateBytes(t.run.Plan)), units.Bytes(before)))
	return nil
}

// Compress compresses the states now, as the policy of the run says, whatever it waits for.
func (t *Trainer) Compress() error {
	if t.run.Options.StatePolicy == (optim.Policy{}) {
		return fmt.Errorf("there is no policy that says how; give Options.StatePolicy, such as max-compression")
	}
	if t.compression.Active {
		return nil
	}
	t.wanted.Active = true
	return t.applyPolicy()
}

// StateBytes returns the size of a plan's optimizer states, without master weights.
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
