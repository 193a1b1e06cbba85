package train_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/internal/runtest"
	"spillway/machine"
	"spillway/train"
)

// config of a small GPT-2, with the dropout given.
const (
	withDropout = `{"model_type":"gpt2","vocab_size":61,"n_positions":16,"n_embd":16,"n_layer":2,"n_head":2,"resid_pdrop":0.2,"embd_pdrop":0.2,"attn_pdrop":0.2}`
	noDropout   = `{"model_type":"gpt2","vocab_size":61,"n_positions":16,"n_embd":16,"n_layer":2,"n_head":2,"resid_pdrop":0,"embd_pdrop":0,"attn_pdrop":0}`
)

var optimizer = runtest.Optimizer

const seq = 12

func feed(t testing.TB, c data.Config) *train.Tokens {
	t.Helper()
	c.Length = seq
	l, err := data.NewLoader(runtest.Documents(40, 61), c)
	if err != nil {
		t.Fatal(err)
	}
	return train.NewTokens(l)
}

// plan makes a job on a device of its own, or on as many as there are places for in On.
func plan(t testing.TB, config string, o spillway.Options) *spillway.Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := spillway.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if o.Machine, err = machine.Parse("cpu:1GiB,host:4GiB"); err != nil {
		t.Fatal(err)
	}
	o.On, o.Seq = make([]device.Device, max(len(o.On), 1)), seq
	for i := range o.On {
		o.On[i] = runtest.Device(t)
	}
	if o.Task == "" {
		o.Task = spillway.Train
	}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// start starts a job, closed when the test ends.
func start(t testing.TB, job *spillway.Run) *spillway.Run {
	t.Helper()
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	})
	return job
}

func trainer(t testing.TB, job *spillway.Run, f train.Feed, c train.Config) *train.Trainer {
	t.Helper()
	run, err := train.New(start(t, job), f, c)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// steps runs iterations and gives their reports.
func steps(t testing.TB, run *train.Trainer, n int) (list []train.Report) {
	t.Helper()
	for range n {
		r, err := run.Step()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// broken is a feed that fails.
type broken struct{ train.Feed }

var errBroken = errors.New("the disk is gone")

func (broken) Next(train.Parts) (train.Filled, error) { return train.Filled{}, errBroken }
