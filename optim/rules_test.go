package optim

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// Optimizers that are formulas follow the programs they come from: bitsandbytes' AdEMAMix, schedulefree's
// AdamW, and the formulas of papers in float64.
func TestFormulasAgreeWithTheirOrigins(t *testing.T) {
	text, err := os.ReadFile("../testdata/reference/rules.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Cases []struct {
			Name, Optimizer string
			Shape           []int64
			Initial, Scored []float32
			Gradients       [][]float32
			Values          [][]float32
		}
	}
	if err := json.Unmarshal(text, &reference); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, c := range reference.Cases {
		if strings.HasPrefix(c.Optimizer, "muon") { // takes matrices, see TestMuonAgreesWithPyTorch
			continue
		}
		o := parse(t, c.Optimizer)
		tried++
		tr := training{w: slices.Clone(c.Initial)}
		for range o.States() {
			tr.states = append(tr.states, make([]float32, len(c.Initial)))
		}
		for i, g := range c.Gradients {
			tr.step(t, o, i+1, 1, true, g)
			near(t, c.Name+" weights", tr.w, c.Values[i], 1e-6)
		}
		if len(c.Scored) > 0 {
			Scored(o.Get("beta1"), tr.w, tr.states[0])
			near(t, c.Name+" scored", tr.w, c.Scored, 1e-6)
		}
	}
	if tried < 8 {
		t.Errorf("%d optimizers tried", tried)
	}
}
