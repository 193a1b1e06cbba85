package optim

import (
	"math"

	"spillway/dtype"
	"spillway/op"
)

// Adam is the update of Adam and AdamW:
//
//	g += couple·w
//	m = beta1·m + rest1·g
//	v = beta2·v + rest2·g²
//	w = shrink·w - rate·m/(root·√v + eps)
const Adam op.Kind = "adam"

func init() {
	states := func(Config) []string { return []string{ExpAvg, ExpAvgSq} }
	options := []Option{
		{Name: "beta1", Default: 0.9, Below: 1, Help: "decay of the running mean of gradients"},
		{Name: "beta2", Default: 0.999, Below: 1, Help: "decay of the running mean of their squares"},
		{Name: "eps", Default: 1e-8, Help: "added to the root of the squares"},
	}
	options = append(options, Option{Name: "max_unorm", Help: "longest step before its rate, as a share of the param's norm; 0 for any"},
		Option{Name: "skip_zeros", Flag: true, Help: "elements without a gradient stay as they are, states too"})
	kind := func(c Config) op.Kind {
		if c.Get("max_unorm") > 0 || c.Get("skip_zeros") != 0 {
			return AdamBounded
		}
		return Adam
	}
	RegisterUpdate(boundedAdam())
	Register(Rule{Name: "adamw", Help: "Adam whose weight decay shrinks the weights directly", LR: 1e-3, WeightDecay: 1e-2, Options: options,
		Kind: Adam, KindOf: kind, States: states, Scalars: adamScalars(true)})
	Register(Rule{Name: "adam", Help: "Adam with bias correction, whose weight decay joins the gradient", LR: 1e-3, Options: options,
		Kind: Adam, KindOf: kind, States: states, Scalars: adamScalars(false)})
	RegisterUpdate(Update{
		Kind:    Adam,
		Scalars: []string{"couple", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink"},
		States:  []UpdateState{{Name: ExpAvg}, {ExpAvgSq, true}},
		Step:    updateAdam,
		Examples: map[string]op.Scalars{
			"adamw":      AdamStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 0.271, Bias2: 0.0547, Decoupled: true}.Scalars(),
			"adam":       AdamStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 0.271, Bias2: 0.0547}.Scalars(),
			"first step": AdamStep{Rate: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Bias1: 0.1, Bias2: 0.2236068, Decoupled: true}.Scalars(),
		},
	})
}

// AdamStep are the numbers of one iteration of Adam.
type AdamStep struct {
	Rate, Decay       float32
	Beta1, Beta2, Eps float32
	Bias1             float32 // 1 - beta1^t
	Bias2             float32 // √(1 - beta2^t)
	// Decoupled: weight decay shrinks the weight (AdamW) instead of joining the gradient.
	Decoupled bool
}

// Scalars is what a step multiplies by, rounded to float32 as written.
func (a AdamStep) Scalars() op.Scalars {
	shrink, couple := float32(1), a.Decay
	if a.Decoupled {
		shrink, couple = 1-float32(a.Rate*a.Decay), 0
	}
	return op.Scalars{couple, a.Beta1, 1 - a.Beta1, a.Beta2, 1 - a.Beta2, 1 / a.Bias2, a.Eps, a.Rate / a.Bias1, shrink}
}

// adamScalars computes the bias corrections from the betas as float32 holds them, for those
// are what the running means are made with: 1 - float32(0.999) is off 0.001 by 1e-5, and
// so would be the step if only one of the two were rounded.
func adamScalars(decoupled bool) func(c Config, iteration int, lr, decay float32) op.Scalars {
	return func(c Config, iteration int, lr, decay float32) op.Scalars {
		a := AdamStep{Rate: lr, Decay: decay, Beta1: float32(c.Get("beta1")), Beta2: float32(c.Get("beta2")), Eps: float32(c.Get("eps")), Decoupled: decoupled}
		a.correct(iteration)
		s := a.Scalars()
		s[9], s[10], s[11] = float32(c.Get("max_unorm")), float32(c.Get("skip_zeros")), 1/a.Bias1
		return s
	}
}

// correct sets the bias corrections of an iteration.
func (a *AdamStep) correct(iteration int) {
	t := float64(iteration)
	a.Bias1 = float32(1 - math.Pow(float64(a.Beta1), t))
	a.Bias2 = float32(math.Sqrt(1 - math.Pow(float64(a.Beta2), t)))
}

// AdamBounded is Adam with a bound for the length of a step, as bitsandbytes has it, and without steps
// of elements that have no gradient, where that is asked for.
const AdamBounded op.Kind = "adam_bounded"

func boundedAdam() Update {
	f := op.NewFormula(2, "couple", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink", "max_unorm", "skip_zeros", "debias")
	w, given, zero, one := f.Weight(), f.Gradient(), f.Constant(0), f.Constant(1)
	g := f.FMA(w, f.Scalar("couple"), given)
	idle := f.Mul(f.Scalar("skip_zeros"), f.Do(op.NumEqual, given, zero))
	m := f.SetState(0, f.Where(idle, f.State(0), f.FMA(f.State(0), f.Scalar("beta1"), f.Mul(g, f.Scalar("rest1")))))
	v := f.SetState(1, f.Where(idle, f.State(1), f.FMA(f.State(1), f.Scalar("beta2"), f.Mul(f.Mul(g, g), f.Scalar("rest2")))))
	divisor := f.FMA(f.Sqrt(v), f.Scalar("root"), f.Scalar("eps"))
	size, most := f.Norm(f.Div(f.Mul(m, f.Scalar("debias")), divisor)), f.FMA(f.Norm(w), f.Scalar("max_unorm"), f.Scalar("eps"))
	bounded := f.Mul(f.Do(op.NumAbove, f.Scalar("max_unorm"), zero), f.Do(op.NumAbove, size, most))
	by := f.Where(bounded, f.Div(most, size), one)
	step := f.Mul(f.Div(f.Mul(m, f.Scalar("rate")), divisor), by)
	f.SetWeight(f.Where(idle, w, f.Sub(f.Mul(w, f.Scalar("shrink")), step)))
	return Update{Kind: AdamBounded, States: []UpdateState{{Name: ExpAvg}, {ExpAvgSq, true}}, Formula: f, Examples: map[string]op.Scalars{
		"bounded": {0, 0.9, 0.1, 0.999, 0.001, 18, 1e-8, 3e-2, 0.999, 1e-2, 0, 3.7},
		"skips":   {0.1, 0.9, 0.1, 0.999, 0.001, 18, 1e-8, 3e-2, 1, 0, 1, 3.7},
	}}
}

func updateAdam(s *op.Scalars, w, g float32, states []Cell) float32 {
	couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]
	g = dtype.FMA(w, couple, g)
	m := states[0].Set(dtype.FMA(states[0].Value, beta1, float32(g*rest1)))
	v := states[1].Set(dtype.FMA(states[1].Value, beta2, float32(float32(g*g)*rest2)))
	divisor := dtype.FMA(float32(math.Sqrt(float64(v))), root, eps)
	return dtype.FMA(w, shrink, -(float32(m*rate) / divisor))
}
