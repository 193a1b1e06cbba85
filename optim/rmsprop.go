package optim

import (
	"math"

	"spillway/dtype"
	"spillway/op"
)

// RMSprop is the update of RMSprop and Adagrad, which divide by the root of squares:
//
//	g += couple·w
//	v = alpha·v + rest·g²
//	w -= rate·g/(√v + eps)
//
// RMSprop has their running mean, Adagrad their sum.
const RMSprop op.Kind = "rmsprop"

func init() {
	Register(Rule{
		Name: "rmsprop", Help: "steps divided by the root of a running mean of squares; half of Adam's state; without momentum", LR: 1e-2,
		Options: []Option{
			{Name: "alpha", Default: 0.99, Below: 1, Help: "decay of the running mean of squares"},
			{Name: "eps", Default: 1e-8, Help: "added to the root of the squares"},
		},
		Kind:   RMSprop,
		States: func(Config) []string { return []string{SquareAvg} },
		Scalars: func(c Config, _ int, lr, decay float32) op.Scalars {
			alpha := c.Get("alpha")
			return RMSpropStep{Rate: lr, Decay: decay, Alpha: float32(alpha), Rest: float32(1 - alpha), Eps: float32(c.Get("eps"))}.Scalars()
		},
	})
	Register(Rule{
		Name: "adagrad", Help: "steps divided by the root of the sum of all squares so far; half of Adam's state", LR: 1e-2,
		Options: []Option{
			{Name: "lr_decay", Help: "the rate of iteration t is lr/(1 + (t-1)·lr_decay)"},
			{Name: "eps", Default: 1e-10, Help: "added to the root of the squares"},
		},
		Kind:   RMSprop,
		States: func(Config) []string { return []string{SquareSum} },
		Rate: func(c Config, iteration int, lr float64) float64 {
			return lr / (1 + float64(iteration-1)*c.Get("lr_decay"))
		},
		Scalars: func(c Config, _ int, lr, decay float32) op.Scalars {
			return RMSpropStep{Rate: lr, Decay: decay, Alpha: 1, Rest: 1, Eps: float32(c.Get("eps"))}.Scalars()
		},
	})
	RegisterUpdate(Update{
		Kind:    RMSprop,
		Scalars: []string{"couple", "alpha", "rest", "eps", "rate"},
		States:  []UpdateState{{SquareAvg, true}},
		Step:    updateRMSprop,
		Examples: map[string]op.Scalars{
			"rmsprop": RMSpropStep{Rate: 1e-2, Decay: 0.1, Alpha: 0.99, Rest: 1 - 0.99, Eps: 1e-8}.Scalars(),
			"adagrad": RMSpropStep{Rate: 1e-2, Alpha: 1, Rest: 1, Eps: 1e-10}.Scalars(),
		},
	})
}

// RMSpropStep are the numbers of one iteration of RMSprop or Adagrad.
type RMSpropStep struct{ Rate, Decay, Alpha, Rest, Eps float32 }

// Scalars is what a step multiplies by, rounded to float32 as written.
func (a RMSpropStep) Scalars() op.Scalars { return op.Scalars{a.Decay, a.Alpha, a.Rest, a.Eps, a.Rate} }

func updateRMSprop(s *op.Scalars, w, g float32, states []Cell) float32 {
	couple, alpha, rest, eps, rate := s[0], s[1], s[2], s[3], s[4]
	g = dtype.FMA(w, couple, g)
	v := states[0].Set(dtype.FMA(states[0].Value, alpha, float32(float32(g*g)*rest)))
	return w - float32(g*rate)/(float32(math.Sqrt(float64(v)))+eps)
}
