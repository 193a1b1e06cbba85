package inspect

import (
	"errors"
	"slices"
	"testing"

	"spillway"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/recipe"
	"spillway/units"
)

// The largest is found as by trying all, where at most a few are out of order.
func TestLargest(t *testing.T) {
	for _, good := range [][]bool{{}, {false}, {true}, {true, true, false, false}, {true, true, true}, {true, false, true, false, false, false}, {true, true, true, false, false, true, false, false}} {
		tries := 0
		at := func(i int) (Fit, error) { tries++; return Fit{Params: int64(i), Fits: good[i]}, nil }
		got, err := largest(len(good), at, func(f Fit) bool { return f.Fits })
		if err != nil {
			t.Fatal(err)
		}
		want := -1
		for i, g := range good {
			if g {
				want = i
			}
		}
		if (got == nil) != (want < 0) || got != nil && got.Params != int64(want) {
			t.Errorf("%v: %v, want %d", good, got, want)
		}
	}
	_, err := largest(3, func(int) (Fit, error) { return Fit{}, errors.New("broken") }, func(Fit) bool { return true })
	if err == nil {
		t.Error("an error is lost")
	}
}

// What fits is what the planner says of the same task, and what does not has both numbers.
func TestFitsArePlans(t *testing.T) {
	on, err := machine.Parse("gpu:1GiB@12GB/s,host:2GiB")
	if err != nil {
		t.Fatal(err)
	}
	o := MemoryOptions{MicroBatchSize: 1, Seq: 128, Rank: 8}
	o.Optimizer, _ = optim.Parse("adamw")
	m, err := spillway.Open("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	list, err := Fits(t.Context(), m, on, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range fitTasks {
		if f := list[i]; f.Task != string(task) || f.Params != 124439808 || f.Fits && !(f.TokensPerSecond > 0) {
			t.Errorf("%+v", f)
		}
	}
	p := recipe.NewPlan()
	p.Machine, p.MicroBatchSize, p.Seq, p.Task = on, 1, 128, spillway.Train
	job, err := m.Plan(p.Complete(on.Devices[0]))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(fitTasks, spillway.Train)
	if f := list[i]; f.DeviceBytes != job.Plan.Peak()[plan.OnDevice] || f.Strategy != job.Plan.Strategy || f.TokensPerSecond != job.Plan.Forecast.TokensPerSec || f.Resident || f.How() == "" {
		t.Errorf("%+v, the plan is %s with %v", f, job.Plan.Strategy, job.Plan.Peak())
	}
	large, err := spillway.OfSize(20 * units.GiB)
	if err != nil {
		t.Fatal(err)
	}
	if list, err = Fits(t.Context(), large, on, o); err != nil || list[0].Fits || list[0].Reason == "" {
		t.Errorf("20 GiB in 3 GiB: %+v, %v", list, err)
	}
}

// The largest models are those that plans of all find.
func TestLargestModels(t *testing.T) {
	on, err := machine.Parse("gpu:1536MiB@12GB/s,host:6GiB")
	if err != nil {
		t.Fatal(err)
	}
	o := MemoryOptions{MicroBatchSize: 1, Seq: 64, Rank: 8}
	o.Optimizer, _ = optim.Parse("adamw")
	names := []string{"gpt2-large", "gpt2", "gpt2-medium"}
	planned := 0
	got, err := LargestModels(t.Context(), names, on, o, func(_, _ string) { planned++ })
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range fitTasks {
		var any, resident string
		for _, name := range []string{"gpt2", "gpt2-medium", "gpt2-large"} {
			m, err := spillway.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := fit(t.Context(), m, task, on, o)
			if err != nil {
				t.Fatal(err)
			}
			if f.Fits {
				any = name
			}
			if f.Fits && f.Resident {
				resident = name
			}
		}
		name := func(f *Fit) string {
			if f == nil {
				return ""
			}
			return f.Model
		}
		if l := got[i]; l.Task != string(task) || name(l.Any) != any || name(l.Resident) != resident {
			t.Errorf("%s: %q and %q, plans of all say %q and %q", task, name(l.Any), name(l.Resident), any, resident)
		}
	}
	if most := len(fitTasks) * len(names); planned == 0 || planned > most {
		t.Errorf("%d plans for %d tasks of %d models", planned, len(fitTasks), len(names))
	}
}
