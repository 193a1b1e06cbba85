package train

import (
	"encoding/json"
	"fmt"

	"spillway/checkpoint"
)

// Durable keeps the weights and the optimizer's state of completed iterations, so that
// a run killed at any instant goes on from the last one kept.
type Journal interface {
	// Recovered is the iteration whose weights and optimizer state the executor holds
	// already, and the state committed with them; false for none.
	Recovered() (iteration int64, state []byte, ok bool)
	// Begin says that weights and optimizer state are about to become those of an
	// iteration. Several may begin before a commit.
	Begin(iteration int64) error
	// Commit says that they have, and makes them durable with the state.
	Commit(iteration int64, state []byte) error
}

// noneKept is an iteration that no run has.
const noneJournaled = -1

func (t *Trainer) begin(iteration int64) error {
	if t.c.Journal == nil {
		return nil
	}
	return t.c.Journal.Begin(iteration)
}

// commit keeps the iterations done, if they are not yet.
func (t *Trainer) commit() error {
	if t.c.Journal == nil || t.journaled == t.done {
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
	if err := t.c.Journal.Commit(t.done, raw); err != nil {
		return err
	}
	t.journaled = t.done
	return nil
}

// recover goes on from what is durable, unless a checkpoint is newer.
func (t *Trainer) recover(newest *checkpoint.Checkpoint) (bool, error) {
	if t.c.Journal == nil {
		return false, nil
	}
	iteration, raw, ok := t.c.Journal.Recovered()
	if !ok || newest != nil && newest.Iteration > iteration {
		return false, nil
	}
	if newest != nil {
		t.last, t.saved = newest.Path, newest.Iteration
	}
	t.journaled = iteration
	if err := t.restoreState(raw, iteration); err != nil {
		return false, fmt.Errorf("from iteration %d on disk: %w", iteration, err)
	}
	return true, t.commit()
}
