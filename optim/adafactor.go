package optim

import (
	"math"

	"spillway/op"
)

// adafactor keeps means of squares by row and by column of a matrix, so that its state is
// a thousandth of Adam's. Left alone it takes the rate it is given, as trainers use it.
// With RelativeStep that is the most of a rate that falls with the root of the iteration,
// with ScaleParameter the rate is relative to the size of each param: together that is
// the optimizer of its paper.
var adafactor = rule{
	defaults: Config{Name: "adafactor", LR: 1e-3, Eps: 1e-30, MinScale: 1e-3, ClipThreshold: 1, DecayRate: -0.8},
	kind:     op.Adafactor,
	options: func(c *Config) []option {
		return []option{{"lr", &c.LR}, {"beta1", &c.Beta1}, {"eps", &c.Eps}, {"eps2", &c.MinScale}, {"clip_threshold", &c.ClipThreshold}, {"decay_rate", &c.DecayRate},
			{"weight_decay", &c.WeightDecay}, {"scale_parameter", &c.ScaleParameter}, {"relative_step", &c.RelativeStep}, {"warmup_init", &c.WarmupInit}}
	},
	states:   adafactorStates,
	factored: op.FactoredStates,
	args:     adafactorArgs,
	rate:     adafactorRate,
}

// adafactorStates: besides the squares there is a mean where beta1 wants one.
func adafactorStates(c Config) []string {
	if c.Beta1 == 0 {
		return nil
	}
	return []string{ExpAvg}
}

func adafactorArgs(c Config, iteration int) (f op.Scalars) {
	f[op.ArgBeta1], f[op.ArgEps], f[op.ArgThreshold] = float32(c.Beta1), float32(c.Eps), float32(c.ClipThreshold)
	f[op.ArgTake] = float32(math.Pow(float64(iteration), c.DecayRate))
	if c.ScaleParameter {
		f[op.ArgLeastScale] = float32(c.MinScale)
	}
	return f
}

// adafactorRate bounds the rate of an iteration.
func adafactorRate(c Config, iteration int, rate float64) float64 {
	if c.RelativeStep {
		rate = min(rate, 1/math.Sqrt(float64(iteration)))
	}
	if c.WarmupInit {
		rate = min(rate, 1e-6*float64(iteration))
	}
	return rate
}
