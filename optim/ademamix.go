package optim

import (
	"math"

	"spillway/op"
)

// AdEMAMix is Adam with a second, slow mean of gradients:
//
//	m = beta1·m + rest1·g, s = beta3·s + rest3·g, v = beta2·v + rest2·g²
//	w = shrink·w - rate·(m·debias + alpha·s)/(root·√v + eps)
const AdEMAMix op.Kind = "ademamix"

// ExpAvgSlow is the name of AdEMAMix's slow mean.
const ExpAvgSlow = "exp_avg_slow"

func init() {
	f := op.NewFormula(3, "beta1", "rest1", "beta3", "rest3", "beta2", "rest2", "debias", "alpha", "root", "eps", "rate", "shrink")
	g := f.Gradient()
	m := f.SetState(0, f.FMA(f.State(0), f.Scalar("beta1"), f.Mul(g, f.Scalar("rest1"))))
	slow := f.SetState(1, f.FMA(f.State(1), f.Scalar("beta3"), f.Mul(g, f.Scalar("rest3"))))
	v := f.SetState(2, f.FMA(f.State(2), f.Scalar("beta2"), f.Mul(f.Mul(g, g), f.Scalar("rest2"))))
	step := f.FMA(slow, f.Scalar("alpha"), f.Mul(m, f.Scalar("debias")))
	step = f.Div(f.Mul(step, f.Scalar("rate")), f.FMA(f.Sqrt(v), f.Scalar("root"), f.Scalar("eps")))
	f.SetWeight(f.Sub(f.Mul(f.Weight(), f.Scalar("shrink")), step))

	scalars := func(c Config, iteration int, lr, decay float32) op.Scalars {
		t, beta1, beta2, beta3, alpha := float64(iteration), c.Get("beta1"), c.Get("beta2"), c.Get("beta3"), c.Get("alpha")
		if n := c.Get("t_alpha"); n > 0 {
			alpha = min(t*alpha/n, alpha)
		}
		if n := c.Get("t_beta3"); n > 0 {
			a, b, share := math.Log(beta1), math.Log(beta3), t/n
			beta3 = min(math.Exp(a*b/((1-share)*b+share*a)), beta3)
		}
		b1, b2 := float32(beta1), float32(beta2)
		return op.Scalars{b1, 1 - b1, float32(beta3), float32(1 - beta3), b2, 1 - b2, float32(1 / (1 - math.Pow(float64(b1), t))), float32(alpha),
			float32(1 / math.Sqrt(1-math.Pow(float64(b2), t))), float32(c.Get("eps")), lr, 1 - float32(lr*decay)}
	}
	r := Rule{Name: "ademamix", Help: "AdamW with a second, slow mean of gradients", LR: 1e-3, WeightDecay: 1e-2, Scalars: scalars, Options: []Option{
		{Name: "beta1", Default: 0.9, Below: 1, Help: "decay of the running mean of gradients"},
		{Name: "beta2", Default: 0.999, Below: 1, Help: "decay of the running mean of their squares"},
		{Name: "beta3", Default: 0.9999, Below: 1, Help: "decay of the slow mean of gradients"},
		{Name: "alpha", Default: 5, Help: "share of the slow mean in a step"},
		{Name: "t_alpha", Help: "iterations over which alpha grows; 0 for none"},
		{Name: "t_beta3", Help: "iterations over which beta3 grows from beta1; 0 for none"},
		{Name: "eps", Default: 1e-8, Help: "added to the root of the squares"},
	}}
	RegisterFormula(r, []UpdateState{{Name: ExpAvg}, {Name: ExpAvgSlow}, {ExpAvgSq, true}}, f, map[string]op.Scalars{
		"ademamix": {0.9, 0.1, 0.999, 0.001, 0.95, 0.05, 3.69, 5, 3.2, 1e-8, 1e-2, 0.999},
	})
}
