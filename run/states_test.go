package run_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"spillway"
	"spillway/executor"
	"spillway/planner"
	values "spillway/run/state"
)

// A run is planned, running or parked, and its weights are the same bits in all of them.
func TestStatesOfARun(t *testing.T) {
	r := planned(t, open(t, configFile(t, tinyLlama(true, 0))), spillway.Options{Task: spillway.Train, MicroBatchSize: 2, Seq: 12})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	weights := func() values.Dict {
		t.Helper()
		d, err := values.Weights(r.Executor())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	check := func(what string, err error, running bool) {
		t.Helper()
		if err != nil || (r.Executor() != nil) != running {
			t.Fatalf("%s: running is %t, %v", what, r.Executor() != nil, err)
		}
	}
	if r.Executor() != nil {
		t.Error("a planned run has memory")
	}
	check("start", r.Start(), true)
	want := weights()
	if err := r.Start(); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("started twice: %v", err)
	}
	check("park", r.Park(), false)
	if err := r.Start(); err == nil || !strings.Contains(err.Error(), "is parked") {
		t.Errorf("a parked run was started: %v", err)
	}
	check("wake", r.Wake(), true)
	if !reflect.DeepEqual(weights(), want) {
		t.Error("parking changed weights")
	}

	before := r.Plan
	elsewhere := r.Options
	elsewhere.Constraints.State, elsewhere.Constraints.Weights = "host", "host"
	check("replan", r.Replan(func() (*spillway.Run, error) { return r.Model.Plan(elsewhere) }), true)
	if r.Plan == before || !reflect.DeepEqual(weights(), want) {
		t.Errorf("planned again it is %s, weights the same: %t", r.Plan.Strategy, reflect.DeepEqual(weights(), want))
	}
	offloaded, refused := r.Plan, errors.New("no other plan")
	if err := r.Replan(func() (*spillway.Run, error) { return nil, refused }); !errors.Is(err, refused) || r.Executor() == nil || r.Plan != offloaded {
		t.Errorf("without another plan the run does not go on: %v", err)
	}
	if !reflect.DeepEqual(weights(), want) {
		t.Error("a refused plan changed weights")
	}
	check("close", r.Close(), false)
	check("start again", r.Start(), true)
}

// What is left next to a run is all that a run next to it takes, and nothing is an error.
func TestRunsNextToEachOther(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(true, 0)))
	training := planned(t, m, spillway.Options{Task: spillway.Train, MicroBatchSize: 2, Seq: 12})
	o := training.Options
	o.Budget = training.Plan.Peak()["device"] * 3 / 2
	training, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	evaluation := func() (*spillway.Run, error) {
		o := training.Options
		o.Task = spillway.Eval
		return training.NextTo(o)
	}
	eval, err := evaluation()
	if err != nil {
		t.Fatal(err)
	}
	if sum := training.Plan.Peak()["device"] + eval.Plan.Peak()["device"]; sum > o.Budget {
		t.Errorf("both take %d bytes, %d are allowed", sum, o.Budget)
	}
	if err := errors.Join(training.Start(), eval.StartEmpty(), eval.CopyWeights(training)); err != nil {
		t.Fatal(err)
	}
	same := func(e *executor.Executor) values.Dict {
		d, err := values.Weights(e)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if !reflect.DeepEqual(same(eval.Executor()), same(training.Executor())) {
		t.Error("the evaluation has other weights")
	}
	if err := errors.Join(eval.Close(), training.Close()); err != nil {
		t.Error(err)
	}
	o.Budget = training.Plan.Peak()["device"]
	if training, err = m.Plan(o); err != nil {
		t.Fatal(err)
	}
	var fit *planner.FitError
	if _, err := evaluation(); !errors.As(err, &fit) {
		t.Errorf("next to a run that takes everything: %v", err)
	}
}
