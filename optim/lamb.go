package optim

import (
	"math"

	"spillway/op"
)

// LAMB is Adam whose step is as long as the param, times the rate; LARS the same of SGD with momentum:
//
//	LAMB  u = (m·debias)/(root·√v + eps) + decay·w, w -= rate·(‖w‖/‖u‖)·u
//	LARS  d = g + decay·w, m = momentum·m + trust·(‖w‖/‖d‖)·d, w -= rate·m
//
// A ratio of which one norm is 0 counts as 1.
const (
	LAMB op.Kind = "lamb"
	LARS op.Kind = "lars"
)

// ratioOf is the ratio of two norms, or 1.
func ratioOf(f *op.Formula, w, u, by op.Number) op.Number {
	zero := f.Constant(0)
	some := f.Mul(f.Do(op.NumAbove, w, zero), f.Do(op.NumAbove, u, zero))
	return f.Where(some, f.Div(f.Mul(w, by), u), f.Constant(1))
}

func init() {
	f := op.NewFormula(2, "beta1", "rest1", "beta2", "rest2", "debias", "root", "eps", "rate", "decay")
	w, g := f.Weight(), f.Gradient()
	m := f.SetState(0, f.FMA(f.State(0), f.Scalar("beta1"), f.Mul(g, f.Scalar("rest1"))))
	v := f.SetState(1, f.FMA(f.State(1), f.Scalar("beta2"), f.Mul(f.Mul(g, g), f.Scalar("rest2"))))
	u := f.Div(f.Mul(m, f.Scalar("debias")), f.FMA(f.Sqrt(v), f.Scalar("root"), f.Scalar("eps")))
	u = f.FMA(w, f.Scalar("decay"), u)
	f.SetWeight(f.Sub(w, f.Mul(u, f.Mul(f.Scalar("rate"), ratioOf(f, f.Norm(w), f.Norm(u), f.Constant(1))))))
	RegisterFormula(Rule{Name: "lamb", Help: "Adam whose steps are as long as each param, for large batches", LR: 1e-3, Options: []Option{
		{Name: "beta1", Default: 0.9, Below: 1, Help: "decay of the running mean of gradients"},
		{Name: "beta2", Default: 0.999, Below: 1, Help: "decay of the running mean of their squares"},
		{Name: "eps", Default: 1e-6, Help: "added to the root of the squares"},
	}, Scalars: func(c Config, iteration int, lr, decay float32) op.Scalars {
		b1, b2, t := float32(c.Get("beta1")), float32(c.Get("beta2")), float64(iteration)
		return op.Scalars{b1, 1 - b1, b2, 1 - b2, float32(1 / (1 - math.Pow(float64(b1), t))), float32(1 / math.Sqrt(1-math.Pow(float64(b2), t))), float32(c.Get("eps")), lr, decay}
	}}, []UpdateState{{Name: ExpAvg}, {ExpAvgSq, true}}, f, map[string]op.Scalars{"lamb": {0.9, 0.1, 0.95, 0.05, 3.7, 3.2, 1e-6, 1e-2, 0.1}})

	f = op.NewFormula(1, "momentum", "trust", "rate", "decay")
	w = f.Weight()
	d := f.FMA(w, f.Scalar("decay"), f.Gradient())
	ratio := ratioOf(f, f.Norm(w), f.Norm(d), f.Scalar("trust"))
	m = f.SetState(0, f.FMA(f.State(0), f.Scalar("momentum"), f.Mul(d, ratio)))
	f.SetWeight(f.Sub(w, f.Mul(m, f.Scalar("rate"))))
	RegisterFormula(Rule{Name: "lars", Help: "SGD with momentum whose gradients are as long as each param, times trust", LR: 1e-1, Options: []Option{
		{Name: "momentum", Default: 0.9, Below: 1, Help: "decay of the sum of gradients that is stepped along"},
		{Name: "trust", Default: 1e-3, Help: "length of a gradient as a share of the param's"},
	}, Scalars: func(c Config, _ int, lr, decay float32) op.Scalars {
		return op.Scalars{float32(c.Get("momentum")), float32(c.Get("trust")), lr, decay}
	}}, []UpdateState{{Name: MomentumBuffer}}, f, map[string]op.Scalars{"lars": {0.9, 1e-3, 0.1, 0.01}})
}
