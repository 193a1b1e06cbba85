package optim

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// reference is what PyTorch and transformers gave; testdata/reference/README.md
// says how it was made.
type reference struct {
	Optimizers []struct {
		Name    string
		Options struct {
			LR          float64
			Betas       [2]float64
			Eps         float64
			WeightDecay float64 `json:"weight_decay"`
			Momentum    float64
			Dampening   float64
			Nesterov    bool
			Alpha       float64
			LRDecay     float64 `json:"lr_decay"`
		}
		Initial    []float32
		Gradients  [][]float32
		Values     [][]float32
		FinalState map[string]json.RawMessage `json:"final_state"`
	}
	Clipping []struct {
		Limit     float64
		Gradients [][]float32
		Norm      float64
		Clipped   [][]float32
	}
	Schedules []struct {
		Name    string
		Rate    float64
		Options struct {
			Warmup      int     `json:"num_warmup_steps"`
			Total       int     `json:"num_training_steps"`
			MinLR       float64 `json:"min_lr"`
			StartFactor float64 `json:"start_factor"`
			TotalIters  int     `json:"total_iters"`
			TMax        int     `json:"T_max"`
			EtaMin      float64 `json:"eta_min"`
			StepSize    int     `json:"step_size"`
			Gamma       float64
		}
		Rates []float64
	}
	LossScale struct {
		Interval int64
		Overflow []bool
		Scale    []float64 // after each iteration
	} `json:"loss_scale"`
}

func readReference(t *testing.T) reference {
	t.Helper()
	text, err := os.ReadFile("../testdata/reference/optimizers.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// near compares relative to the largest number there is: a weight that passes near
// zero keeps the rounding of the larger terms it is the difference of. PyTorch
// fuses some multiplications and sums, we never do.
func near(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	var largest float64
	for _, v := range want {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tolerance*largest) {
			t.Errorf("%s: number %d is %v, PyTorch has %v; that is %.2g of the largest", what, i, got[i], want[i], d/largest)
		}
	}
}

func flagOf(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func TestOptimizersAgreeWithPyTorch(t *testing.T) {
	for _, o := range readReference(t).Optimizers {
		name, _, _ := strings.Cut(o.Name, "-")
		c := parse(t, name)
		c.LR, c.WeightDecay = o.Options.LR, o.Options.WeightDecay
		for option, value := range map[string]float64{"beta1": o.Options.Betas[0], "beta2": o.Options.Betas[1], "eps": o.Options.Eps, "alpha": o.Options.Alpha, "lr_decay": o.Options.LRDecay,
			"momentum": o.Options.Momentum, "dampening": o.Options.Dampening, "nesterov": flagOf(o.Options.Nesterov)} {
			if err := c.Set(option, value); err != nil && value != 0 {
				t.Fatal(err)
			}
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		tr := training{w: o.Initial}
		for range c.States() {
			tr.states = append(tr.states, make([]float32, len(o.Initial)))
		}
		for i, g := range o.Gradients {
			tr.step(t, c, i+1, 1, true, g)
			near(t, o.Name+" weights", tr.w, o.Values[i], 2e-7)
		}
		for i, state := range c.States() {
			var want []float32
			if err := json.Unmarshal(o.FinalState[state], &want); err != nil {
				t.Fatal(err)
			}
			near(t, o.Name+" "+state, tr.states[i], want, 2e-7+roundedTake(c, state))
		}
	}
}

// roundedTake is how far 1 - beta is off when it is made of the rounded beta, as
// the running means are: 1.3e-5 for 0.999.
func roundedTake(c Config, state string) float64 {
	beta, known := map[string]float64{ExpAvg: c.Get("beta1"), ExpAvgSq: c.Get("beta2")}[state]
	if !known {
		return 0
	}
	return math.Abs(float64(1-float32(beta))/(1-beta) - 1)
}

func TestClippingAgreesWithPyTorch(t *testing.T) {
	for _, c := range readReference(t).Clipping {
		var sums []float64
		for _, g := range c.Gradients {
			sums = append(sums, SumSquares(g))
		}
		norm := GlobalNorm(sums...)
		if math.Abs(norm-c.Norm) > 2e-7*c.Norm {
			t.Errorf("norm %v, PyTorch has %v", norm, c.Norm)
		}
		factor, err := Clip(norm, c.Limit)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range c.Gradients {
			clipped := make([]float32, len(g))
			for j := range g {
				clipped[j] = g[j] * factor
			}
			near(t, "clipped", clipped, c.Clipped[i], 2e-7)
		}
	}
}

func TestSchedulesAgreeWithPyTorch(t *testing.T) {
	for _, r := range readReference(t).Schedules {
		o := r.Options
		s, known := map[string]Schedule{
			"constant":        {Kind: Constant},
			"constant-warmup": {Kind: Constant, Warmup: o.Warmup},
			"linear":          {Kind: Linear, Warmup: o.Warmup, Total: o.Total},
			"cosine":          {Kind: Cosine, Warmup: o.Warmup, Total: o.Total},
			"cosine-floor":    {Kind: Cosine, Warmup: o.Warmup, Total: o.Total, Floor: o.MinLR / r.Rate},
			"torch-warmup":    {Kind: Constant, Warmup: o.TotalIters, Start: o.StartFactor},
			"torch-cosine":    {Kind: Cosine, Total: o.TMax, Floor: o.EtaMin / r.Rate},
			"step":            {Kind: Step, Every: o.StepSize, Gamma: o.Gamma},
		}[r.Name]
		if !known {
			t.Errorf("there is a schedule %q nobody tests", r.Name)
			continue
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for i, want := range r.Rates {
			if s.Kind == Cosine && i > s.Total {
				want = s.Floor * r.Rate // theirs climb again
			}
			if got := r.Rate * s.Factor(i); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: iteration %d has rate %v, want %v", r.Name, i, got, want)
			}
		}
	}
}
