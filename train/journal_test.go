package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"spillway/data"
	"spillway/train"
)

// diary is a journal that records its calls.
type diary struct {
	lines     []string
	state     []byte // of the last commit
	iteration int64
	recovered bool
}

func (d *diary) Recovered() (int64, []byte, bool) { return d.iteration, d.state, d.recovered }

func (d *diary) Begin(i int64) error {
	d.lines = append(d.lines, fmt.Sprint("begin ", i))
	return nil
}

func (d *diary) Commit(i int64, state []byte) error {
	var said struct{ Iteration int64 }
	if err := json.Unmarshal(state, &said); err != nil {
		return err
	}
	d.lines, d.state, d.iteration = append(d.lines, fmt.Sprintf("commit %d, state of %d", i, said.Iteration)), state, i
	return nil
}

// Weights change only between a begin and a commit, the first and the last iteration are
// committed whatever JournalEvery is, and a run resumes from the last commit.
func TestJournal(t *testing.T) {
	d := &diary{}
	runTo(t, context.Background(), train.Config{Iterations: 3, Journal: d, JournalEvery: 2})
	want := []string{"commit 0, state of 0", "begin 1", "begin 2", "commit 2, state of 2", "begin 3", "commit 3, state of 3"}
	if !slices.Equal(d.lines, want) {
		t.Errorf("it was %q", d.lines)
	}
	d.recovered, d.lines = true, nil
	run := trainer(t, job(t), feed(t, data.Config{Seed: 8}), train.Config{Journal: d})
	if r := steps(t, run, 1)[0]; r.Iteration != 4 || !slices.Equal(d.lines, []string{"begin 4", "commit 4, state of 4"}) {
		t.Errorf("iteration %d follows 3: %q", r.Iteration, d.lines)
	}
	// A checkpoint that is newer than what is durable wins, and is made durable.
	dir := t.TempDir()
	c := saving(t, dir, 0)
	c.Iterations = 6
	runTo(t, context.Background(), c)
	d = &diary{}
	c.Journal = d
	trainer(t, job(t), feed(t, data.Config{Seed: 8}), c)
	if want := []string{"begin 6", "commit 6, state of 6"}; !slices.Equal(d.lines, want) {
		t.Errorf("from a checkpoint: %q", d.lines)
	}
}
