package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"spillway/demo"
)

// The demonstration keeps what it promises, here in fewer iterations.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("training takes seconds")
	}
	var text, errs strings.Builder
	sh := shell{out: &text, err: &errs, cache: cache}
	r, err := showDemo(context.Background(), sh, &text, demo.Options{Steps: 20, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, failed := range r.Failed {
		t.Error(failed)
	}
	if !strings.HasPrefix(r.Sample, demo.Prompt) || len(r.Sample) != len(demo.Prompt)+demo.SampleLength {
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
