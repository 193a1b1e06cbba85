package optim

import (
	"fmt"

	"spillway/dtype"
	"spillway/op"
)

// SGD is the update of stochastic gradient descent:
//
//	g += decay·w
//	m = momentum·m + fresh·g
//	w -= rate·(direct·g + through·m)
//
// Without a state, or where has_momentum is 0, m stays as it is and w -= rate·g.
const SGD op.Kind = "sgd"

func init() {
	Register(Rule{
		Name: "sgd", Help: "stochastic gradient descent, with momentum if that is not 0", LR: 1e-3,
		Options: []Option{
			{Name: "momentum", Help: "decay of the sum of gradients that is stepped along"},
			{Name: "dampening", Help: "share of a new gradient that is left out of the sum"},
			{Name: "nesterov", Flag: true, Help: "look ahead along the momentum"},
		},
		Check: func(c Config) error {
			if c.Get("nesterov") != 0 && (c.Get("momentum") == 0 || c.Get("dampening") != 0) {
				return fmt.Errorf("nesterov with momentum %v and dampening %v; it needs momentum above 0 and no dampening", c.Get("momentum"), c.Get("dampening"))
			}
			return nil
		},
		Kind: SGD,
		States: func(c Config) []string {
			if c.Get("momentum") == 0 {
				return nil
			}
			return []string{MomentumBuffer}
		},
		Scalars: func(c Config, iteration int, lr, decay float32) op.Scalars {
			return SGDStep{Rate: lr, Decay: decay, Momentum: float32(c.Get("momentum")), Dampening: float32(c.Get("dampening")),
				Nesterov: c.Get("nesterov") != 0, First: iteration == 1}.Scalars()
		},
	})
	RegisterUpdate(Update{
		Kind:      SGD,
		Scalars:   []string{"rate", "decay", "momentum", "fresh", "direct", "through", "has_momentum"},
		States:    []UpdateState{{Name: MomentumBuffer}},
		Stateless: true,
		Step:      updateSGD,
		Examples: map[string]op.Scalars{
			"dampened":   SGDStep{Rate: 0.05, Decay: 0.01, Momentum: 0.9, Dampening: 0.5}.Scalars(),
			"first step": SGDStep{Rate: 0.05, Decay: 0.01, Momentum: 0.9, Dampening: 0.5, First: true}.Scalars(),
			"momentum":   SGDStep{Rate: 0.05, Decay: 0.01, Momentum: 0.9}.Scalars(),
			"nesterov":   SGDStep{Rate: 0.05, Decay: 0.01, Momentum: 0.9, Nesterov: true}.Scalars(),
			"plain":      SGDStep{Rate: 0.05, Decay: 0.01}.Scalars(),
		},
	})
}

// SGDStep are the numbers of one iteration of SGD.
type SGDStep struct {
	Rate, Decay, Momentum, Dampening float32
	Nesterov                         bool
	// First: the first iteration puts the whole gradient into the buffer, undampened.
	First bool
}

// Scalars is what a step multiplies by, rounded to float32 as written.
func (a SGDStep) Scalars() op.Scalars {
	momentum, fresh, direct, through, has := a.Momentum, 1-a.Dampening, float32(0), float32(1), float32(0)
	if a.First {
		momentum, fresh = 0, 1
	}
	if a.Nesterov {
		direct, through = 1, a.Momentum
	}
	if a.Momentum != 0 {
		has = 1
	}
	return op.Scalars{a.Rate, a.Decay, momentum, fresh, direct, through, has}
}

func updateSGD(s *op.Scalars, w, g float32, states []Cell) float32 {
	rate, decay, momentum, fresh, direct, through, hasMomentum := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	g = dtype.FMA(w, decay, g)
	if len(states) == 0 || hasMomentum == 0 {
		return dtype.FMA(-rate, g, w)
	}
	m := states[0].Set(dtype.FMA(g, fresh, float32(states[0].Value*momentum)))
	return dtype.FMA(-rate, dtype.FMA(g, direct, float32(m*through)), w)
}
