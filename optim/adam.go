package optim

import (
	"math"

	"spillway/op"
)

// adam is Adam with bias correction. Its weight decay joins the gradient.
var adam = rule{
	defaults: Config{Name: "adam", LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8},
	kind:     op.Adam,
	options:  adamOptions,
	states:   func(Config) []string { return []string{ExpAvg, ExpAvgSq} },
	args:     adamArgs,
	update:   updateAdam,
}

// adamW is Adam whose weight decay shrinks the weights directly.
var adamW = rule{
	defaults: Config{Name: "adamw", LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2},
	kind:     op.Adam,
	options:  adamOptions,
	states:   adam.states,
	args:     adamArgs,
	update:   updateAdamW,
}

func adamOptions(c *Config) []option {
	return []option{{"lr", &c.LR}, {"beta1", &c.Beta1}, {"beta2", &c.Beta2}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay}}
}

// adamArgs computes the bias corrections from the betas as float32 holds them, for
// those are what the running means are made with: 1 - float32(0.999) is off
// 0.001 by 1e-5, and so would be the step if only one of the two were rounded.
func adamArgs(c Config, iteration int) (f op.Scalars) {
	f[op.ArgBeta1], f[op.ArgBeta2], f[op.ArgEps] = float32(c.Beta1), float32(c.Beta2), float32(c.Eps)
	t := float64(iteration)
	f[op.ArgBias1] = float32(1 - math.Pow(float64(f[op.ArgBeta1]), t))
	f[op.ArgBias2] = float32(math.Sqrt(1 - math.Pow(float64(f[op.ArgBeta2]), t)))
	return f
}

func updateAdamW(_ Config, f op.Scalars, clip float32, w, g []float32, states [][]float32) {
	// shrink = 1 - rate·decay
	shrink := 1 - float32(f[op.ArgRate]*f[op.ArgDecay])
	k := adamScalarsOf(f)
	for i := range w {
		w[i] = k.step(w[i]*shrink, g[i]*clip, &states[0][i], &states[1][i])
	}
}

func updateAdam(_ Config, f op.Scalars, clip float32, w, g []float32, states [][]float32) {
	decay := f[op.ArgDecay]
	k := adamScalarsOf(f)
	for i := range w {
		gi := g[i] * clip
		if decay != 0 {
			gi += float32(decay * w[i])
		}
		w[i] = k.step(w[i], gi, &states[0][i], &states[1][i])
	}
}

// adamScalars are made once per update, in float32.
type adamScalars struct {
	take1, beta2, take2 float32 // take = 1 - beta
	size                float32 // rate / bias1
	bias2, eps          float32
}

func adamScalarsOf(f op.Scalars) adamScalars {
	return adamScalars{
		take1: 1 - f[op.ArgBeta1], beta2: f[op.ArgBeta2], take2: 1 - f[op.ArgBeta2],
		size: f[op.ArgRate] / f[op.ArgBias1], bias2: f[op.ArgBias2], eps: f[op.ArgEps],
	}
}

// step is the part both forms share, one element. The conversions keep the
// compiler from fusing a product with the sum it goes into.
//
//	m = m + take1·(g - m)
//	v = beta2·v + (take2·g)·g
//	d = sqrt(v)/bias2 + eps
//	w = w - (size·m)/d
func (k adamScalars) step(w, g float32, m, v *float32) float32 {
	*m += float32(k.take1 * (g - *m))
	*v = float32(k.beta2**v) + float32(float32(k.take2*g)*g)
	d := float32(math.Sqrt(float64(*v)))/k.bias2 + k.eps
	return w - float32(k.size**m)/d
}
