package optim

import (
	"math"

	"spillway/op"
)

// ScheduleFree is AdamW without a schedule. The weights are y, a point between z, which steps, and x,
// the average of all z:
//
//	v = beta2·v + rest2·g², d = g/(√(v/debias) + eps) + decay·y
//	y += mix·(z - y) - along·d, z -= rate·d
//
// In the first iteration z is y. Scored is the x to evaluate with.
const ScheduleFree op.Kind = "schedule_free_adamw"

// ScheduleFreeZ is the name of the state that steps.
const ScheduleFreeZ = "z"

func init() {
	f := op.NewFormula(2, "first", "beta2", "rest2", "root", "eps", "decay", "mix", "along", "rate")
	y, g := f.Weight(), f.Gradient()
	z := f.Where(f.Scalar("first"), y, f.State(0))
	v := f.SetState(1, f.FMA(f.State(1), f.Scalar("beta2"), f.Mul(f.Mul(g, g), f.Scalar("rest2"))))
	d := f.FMA(y, f.Scalar("decay"), f.Div(g, f.FMA(f.Sqrt(v), f.Scalar("root"), f.Scalar("eps"))))
	f.SetWeight(f.Sub(f.FMA(f.Sub(z, y), f.Scalar("mix"), y), f.Mul(d, f.Scalar("along"))))
	f.SetState(0, f.Sub(z, f.Mul(d, f.Scalar("rate"))))
	warm := func(c Config, iteration int) float64 {
		if n := c.Get("warmup_steps"); n > 0 {
			return min(1, float64(iteration)/n)
		}
		return 1
	}
	RegisterFormula(Rule{
		Name: "schedule_free_adamw", Help: "AdamW that needs no schedule of its rate; evaluate with the average of its weights", LR: 2.5e-3, Options: []Option{
			{Name: "beta1", Default: 0.9, Below: 1, Help: "how far from z to the average the weights are"},
			{Name: "beta2", Default: 0.999, Below: 1, Help: "decay of the running mean of squares"},
			{Name: "eps", Default: 1e-8, Help: "added to the root of the squares"},
			{Name: "warmup_steps", Help: "iterations over which the rate grows"},
		},
		Rate: func(c Config, iteration int, lr float64) float64 { return lr * warm(c, iteration) },
		Scalars: func(c Config, iteration int, lr, decay float32) op.Scalars {
			weight, sum := 0.0, 0.0 // of this iteration, of all so far: squares of rates
			for t := iteration; t > 0; t-- {
				by := warm(c, t)
				if t == iteration {
					weight = by * by
				}
				if by == 1 && t > int(c.Get("warmup_steps")) { // all that are not warming up count 1
					sum += float64(t) - math.Floor(c.Get("warmup_steps"))
					t = int(c.Get("warmup_steps")) + 1
					continue
				}
				sum += by * by
			}
			first, b2, mix := float32(0), float32(c.Get("beta2")), weight/sum
			if iteration == 1 {
				first = 1
			}
			along := float64(lr) * (1 - c.Get("beta1")*(1-mix))
			return op.Scalars{first, b2, 1 - b2, float32(1 / math.Sqrt(1-math.Pow(float64(b2), float64(iteration)))), float32(c.Get("eps")), decay, float32(mix), float32(along), lr}
		},
	}, []UpdateState{{Name: ScheduleFreeZ}, {ExpAvgSq, true}}, f, map[string]op.Scalars{
		"first step":    {1, 0.999, 0.001, 31.6, 1e-8, 0.1, 1, 1e-2, 1e-2},
		"schedule free": {0, 0.999, 0.001, 10, 1e-8, 0.1, 0.25, 3e-3, 1e-2},
	})
}

// Scored are the weights that a schedule-free optimizer is evaluated with, from those it trains and its
// state z, in place of the first.
func Scored(beta1 float64, y, z []float32) {
	by := float32(1 - 1/beta1)
	for i := range y {
		y[i] += by * (z[i] - y[i])
	}
}
