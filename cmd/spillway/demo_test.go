package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// The demonstration keeps what it promises, here in fewer iterations.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("training takes seconds")
	}
	var text, errs strings.Builder
	sh := shell{out: &text, err: &errs, cache: cache}
	d := &demo{sh: sh, text: &text, iterations: 20, patience: time.Hour}
	r, err := d.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, failed := range r.Failed {
		t.Error(failed)
	}
	if !strings.HasPrefix(r.Sample, demoPrompt) || len(r.Sample) != len(demoPrompt)+demoSample {
		t.Errorf("the sample is %q", r.Sample)
	}
	if !strings.Contains(r.Strategy, "CPU offload") {
		t.Errorf("the strategy is %s", r.Strategy)
	}
	for _, want := range []string{"strategy", "step 20 of 20  loss", "predicted", "process", "holds"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

// What does not hold is reported.
func TestDemoChecks(t *testing.T) {
	good := demoReport{ResidentBefore: 10, ResidentPeak: 1010, ResidentPredicted: 1000, ResidentAllowance: 100}
	good.LossFirst, good.LossLast, good.Budget, good.Standard, good.Predicted, good.Measured = 5, 2.9, 10, 20, 1000, 1010
	if good.check(); len(good.Failed) != 0 {
		t.Errorf("all holds, but %v", good.Failed)
	}
	for name, spoil := range map[string]func(*demoReport){
		"the loss":    func(r *demoReport) { r.LossLast = 3.1 },
		"the budget":  func(r *demoReport) { r.Budget = 20 },
		"predicted":   func(r *demoReport) { r.Measured = 1011 },
		"the process": func(r *demoReport) { r.ResidentPeak = 1111 },
	} {
		bad := good
		spoil(&bad)
		if bad.check(); len(bad.Failed) != 1 || !strings.Contains(bad.Failed[0], name) {
			t.Errorf("%s is spoiled: %v", name, bad.Failed)
		}
	}
}
