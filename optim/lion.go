package optim

import (
	"spillway/dtype"
	"spillway/op"
)

// Lion is the update of Lion, whose steps all have one size:
//
//	w = shrink·w - rate·sign(beta1·m + rest1·g)
//	m = beta2·m + rest2·g
const Lion op.Kind = "lion"

func init() {
	Register(Rule{
		Name: "lion", Help: "steps of one size along the sign of a mean; half of Adam's state; use a tenth of Adam's lr and ten times its decay", LR: 1e-4,
		Options: []Option{
			{Name: "beta1", Default: 0.9, Below: 1, Help: "share of the running mean in the direction of a step"},
			{Name: "beta2", Default: 0.99, Below: 1, Help: "decay of the running mean of gradients"},
		},
		Kind:   Lion,
		States: func(Config) []string { return []string{ExpAvg} },
		Scalars: func(c Config, _ int, lr, decay float32) op.Scalars {
			return LionStep{Rate: lr, Decay: decay, Beta1: float32(c.Get("beta1")), Beta2: float32(c.Get("beta2"))}.Scalars()
		},
	})
	RegisterUpdate(Update{
		Kind:     Lion,
		Scalars:  []string{"beta1", "rest1", "beta2", "rest2", "rate", "shrink"},
		States:   []UpdateState{{Name: ExpAvg}},
		Step:     updateLion,
		Examples: map[string]op.Scalars{"lion": LionStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}.Scalars()},
	})
}

// LionStep are the numbers of one iteration of Lion.
type LionStep struct{ Rate, Decay, Beta1, Beta2 float32 }

// Scalars is what a step multiplies by, rounded to float32 as written.
func (a LionStep) Scalars() op.Scalars {
	return op.Scalars{a.Beta1, 1 - a.Beta1, a.Beta2, 1 - a.Beta2, a.Rate, 1 - float32(a.Rate*a.Decay)}
}

func updateLion(s *op.Scalars, w, g float32, states []Cell) float32 {
	beta1, rest1, beta2, rest2, rate, shrink := s[0], s[1], s[2], s[3], s[4], s[5]
	m := states[0].Value
	step := sign(dtype.FMA(m, beta1, float32(g*rest1)))
	states[0].Set(dtype.FMA(m, beta2, float32(g*rest2)))
	return dtype.FMA(w, shrink, -float32(step*rate))
}

// sign is 1 or -1; zero and NaN are their own.
func sign(f float32) float32 {
	switch {
	case f > 0:
		return 1
	case f < 0:
		return -1
	}
	return f
}
