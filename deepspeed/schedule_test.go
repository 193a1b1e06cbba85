package deepspeed_test

import (
	"fmt"
	"math"
	"testing"

	"spillway/deepspeed"
)

// theirs is a scheduler as DeepSpeed runs one: it begins before the first batch and
// steps behind each iteration. Rates are at the start of each iteration.
func theirs(kind string, linear bool, warmup, total, iterations int, low, high float64) (rates []float64) {
	rise := func(last int) float64 {
		if linear {
			return float64(last) / float64(warmup)
		}
		return math.Log(float64(last+1)) / math.Log(float64(warmup))
	}
	at := func(last int) float64 {
		switch {
		case last < 0 && kind == "WarmupCosineLR":
			return 0
		case last < 0:
			return low
		case kind == "WarmupCosineLR" && last < warmup:
			return high * rise(last)
		case kind == "WarmupCosineLR":
			return high * (low/high + (1-low/high)*(1+math.Cos(math.Pi*float64(last-warmup+1)/float64(total-warmup)))/2)
		case last < warmup:
			return low + (high-low)*rise(last)
		case kind == "WarmupDecayLR":
			return low + (high-low)*max(0, float64(total-last)/float64(total-warmup))
		}
		return high
	}
	for i := range iterations {
		rates = append(rates, at(i-1))
	}
	return rates
}

// Schedules give DeepSpeed's rates: exactly, or one iteration earlier where a notice
// says so.
func TestSchedulesAgainstDeepSpeed(t *testing.T) {
	const warmup, total, low, high = 10, 50, 1e-4, 1e-3
	for _, kind := range []string{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"} {
		for _, linear := range []bool{false, true} {
			params := fmt.Sprintf(`"warmup_num_steps": %d, "warmup_type": "%s"`, warmup, map[bool]string{true: "linear", false: "log"}[linear])
			switch kind {
			case "WarmupLR":
				params += fmt.Sprintf(`, "warmup_min_lr": %v, "warmup_max_lr": %v`, low, high)
			case "WarmupDecayLR":
				params += fmt.Sprintf(`, "warmup_min_lr": %v, "warmup_max_lr": %v, "total_num_steps": %d`, low, high, total)
			default:
				params += fmt.Sprintf(`, "cos_min_ratio": %v, "total_num_steps": %d`, low/high, total)
			}
			text := fmt.Sprintf(`{"optimizer": {"type": "Adam", "params": {"lr": %v}}, "scheduler": {"type": "%s", "params": {%s}}}`, high, kind, params)
			c, notices, err := deepspeed.Parse([]byte(text), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Schedule.Check(); err != nil {
				t.Fatal(err)
			}
			early := 0
			for _, n := range notices {
				if n.Path == "scheduler.type" {
					early = 1
				}
			}
			compareRates(t, kind, linear, early, c, theirs(kind, linear, warmup, total, total, low, high))
		}
	}
}

// compareRates allows an iteration's shift: within the warm-up, or behind it.
func compareRates(t *testing.T, kind string, linear bool, early int, c deepspeed.Config, want []float64) {
	t.Helper()
	for i := range want {
		got := c.LearningRate * c.Schedule.Factor(i)
		near := math.Abs(got-want[i]) < 1e-12
		if early > 0 && i+early < len(want) {
			near = near || math.Abs(got-want[i+early]) < 1e-12
		}
		if kind == "WarmupCosineLR" && linear && i == c.Schedule.Warmup {
			near = got == c.LearningRate // which theirs never quite reaches
		}
		if !near && i+early < len(want) {
			t.Errorf("%s, linear %v, iteration %d: rate %g, DeepSpeed has %g", kind, linear, i, got, want[i])
		}
	}
}
