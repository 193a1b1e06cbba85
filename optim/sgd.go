package optim

import "spillway/op"

// sgd is stochastic gradient descent, with momentum if that is not zero.
var sgd = rule{
	defaults: Config{Name: "sgd", LR: 1e-3},
	kind:     op.SGD,
	options: func(c *Config) []option {
		return []option{{"lr", &c.LR}, {"momentum", &c.Momentum}, {"dampening", &c.Dampening}, {"weight_decay", &c.WeightDecay}, {"nesterov", &c.Nesterov}}
	},
	states: sgdStates,
	args:   sgdArgs,
	update: updateSGD,
}

func sgdStates(c Config) []string {
	if c.Momentum == 0 {
		return nil
	}
	return []string{MomentumBuffer}
}

// sgdArgs: the first iteration puts the whole gradient into the buffer, without
// dampening.
func sgdArgs(c Config, iteration int) (f op.Scalars) {
	f[op.ArgBeta1], f[op.ArgBeta2] = float32(c.Momentum), float32(c.Dampening)
	if iteration == 1 {
		f[op.ArgBias1] = 1
	}
	return f
}

// updateSGD, with take = 1 on the first iteration and 1 - dampening later:
//
//	g = g·clip, then g + decay·w where decay is not 0
//	m = momentum·m + take·g
//	w = w - rate·m, or with Nesterov w - rate·(g + momentum·m)
//
// Without momentum there is no m: w = w - rate·g.
func updateSGD(c Config, f op.Scalars, clip float32, w, g []float32, states [][]float32) {
	rate, decay, momentum := f[op.ArgRate], f[op.ArgDecay], f[op.ArgBeta1]
	take := 1 - f[op.ArgBeta2]
	if f[op.ArgBias1] == 1 {
		take = 1
	}
	for i := range w {
		gi := g[i] * clip
		if decay != 0 {
			gi += float32(decay * w[i])
		}
		if len(states) > 0 {
			gi = sgdMomentum(&states[0][i], gi, momentum, take, c.Nesterov)
		}
		w[i] -= float32(rate * gi)
	}
}

func sgdMomentum(m *float32, g, momentum, take float32, nesterov bool) float32 {
	*m = float32(momentum**m) + float32(take*g)
	if nesterov {
		return g + float32(momentum**m)
	}
	return *m
}
