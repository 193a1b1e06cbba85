package optim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// Schedules of transformers, written as their names and lr_scheduler_kwargs, have the rates there
// (tools/reference/schedules.py).
func TestRatesOfSchedulesOfTransformers(t *testing.T) {
	raw, err := os.ReadFile("../testdata/reference/schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Rate  float64
		Cases []struct {
			Name          string
			Options       map[string]any
			Warmup, Steps int
			Rates         []float64
		}
	}
	if err := json.Unmarshal(raw, &reference); err != nil {
		t.Fatal(err)
	}
	for _, c := range reference.Cases {
		var options []string
		for _, name := range slices.Sorted(maps.Keys(c.Options)) {
			options = append(options, fmt.Sprintf("%s=%v", name, c.Options[name]))
		}
		text := c.Name
		if len(options) > 0 {
			text += ":" + strings.Join(options, ",")
		}
		s, err := ParseSchedule(text)
		if err != nil {
			t.Error(err)
			continue
		}
		s.Warmup = c.Warmup
		if s, err = s.Over(c.Steps, reference.Rate); err == nil {
			err = s.Check()
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for i, want := range c.Rates {
			if got := reference.Rate * s.Factor(i); math.Abs(got-want) > 1e-14 {
				t.Errorf("%s, warm-up %d of %d: step %d has the rate %v, transformers' %v", text, c.Warmup, c.Steps, i, got, want)
			}
		}
	}
}
