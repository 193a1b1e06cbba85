package optim

import "spillway/op"

// lion moves every weight by the rate, in the direction of a mean of gradients. Its one
// state is half of what Adam keeps; its rate is a tenth of Adam's, its decay ten times.
var lion = rule{
	defaults: Config{Name: "lion", LR: 1e-4, Beta1: 0.9, Beta2: 0.99},
	kind:     op.Lion,
	options: func(c *Config) []option {
		return []option{{"lr", &c.LR}, {"beta1", &c.Beta1}, {"beta2", &c.Beta2}, {"weight_decay", &c.WeightDecay}}
	},
	states: func(Config) []string { return []string{ExpAvg} },
	args: func(c Config, _ int) (f op.Scalars) {
		f[op.ArgBeta1], f[op.ArgBeta2] = float32(c.Beta1), float32(c.Beta2)
		return f
	},
	update: updateLion,
}

// updateLion, with take = 1 - beta:
//
//	w = w·(1 - rate·decay)
//	w = w - rate·sign(beta1·m + take1·g)
//	m = beta2·m + take2·g
func updateLion(_ Config, f op.Scalars, clip float32, w, g []float32, states [][]float32) {
	rate, beta1, beta2 := f[op.ArgRate], f[op.ArgBeta1], f[op.ArgBeta2]
	shrink, take1, take2 := 1-float32(rate*f[op.ArgDecay]), 1-beta1, 1-beta2
	m := states[0]
	for i := range w {
		gi := g[i] * clip
		step := float32(beta1*m[i]) + float32(take1*gi)
		w[i] *= shrink
		switch {
		case step > 0:
			w[i] -= rate
		case step < 0:
			w[i] += rate
		}
		m[i] = float32(beta2*m[i]) + float32(take2*gi)
	}
}
