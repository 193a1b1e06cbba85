package train

import (
	"encoding/json"
	"fmt"

	"spillway/checkpoint"
)

// Journal makes the weights and the optimizer states of completed iterations durable, so
// that a run killed at any instant goes on from the last one committed.
type Journal interface {
	// Recovered is the iteration whose weights and states the run has already, and the
	// state of the loop committed with them; false for none.
	Recovered() (iteration int64, state []byte, ok bool)
	// Begin says that weights and states are about to become those of an iteration.
	// Several may begin before a commit.
	Begin(iteration int64) error
	// Commit says that they have, and makes them durable with the state of the loop.
	Commit(iteration int64, state []byte) error
}

// noneJournaled is the number of an iteration that no run has.
const noneJournaled = -1

// journal returns the configured journal, else the run's own, else nil.
func (t *Trainer) journal() Journal {
	if t.c.Journal != nil {
		return t.c.Journal
	}
	if j := t.run.Journal(); j != nil {
		return j
	}
	return nil
}

func (t *Trainer) begin(iteration int64) error {
	if j := t.journal(); j != nil {
		return j.Begin(iteration)
	}
	return nil
}

// commit makes the iterations done so far durable, unless they are.
func (t *Trainer) commit() error {
	j := t.journal()
	if j == nil || t.journaled == t.done {
		return nil
	}
	now, err := t.state()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := j.Commit(t.done, raw); err != nil {
		return err
	}
	t.journaled = t.done
	return nil
}

// recover resumes from the journal, unless the newest checkpoint is of a later
// iteration. It reports whether it did.
func (t *Trainer) recover(newest *checkpoint.Checkpoint) (bool, error) {
	j := t.journal()
	if j == nil {
		return false, nil
	}
	iteration, raw, ok := j.Recovered()
	if !ok || newest != nil && newest.Iteration > iteration {
		return false, nil
	}
	if newest != nil {
		t.last, t.saved = newest.Path, newest.Iteration
	}
	t.journaled = iteration
	if err := t.restoreState(raw, iteration, nil); err != nil {
		return false, fmt.Errorf("from iteration %d in the journal: %w", iteration, err)
	}
	return true, t.commit()
}
