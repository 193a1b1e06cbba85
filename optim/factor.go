package optim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Check refuses a schedule that has no rate for some iteration.
func (s Schedule) Check() error {
	fraction := func(v float64) bool { return v >= 0 && v <= 1 }
	positive := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) } // or 0 for what is usual
	curve := func(name string) bool { return slices.Contains([]string{"", Linear, Cosine, inverseRoot}, name) }
	switch {
	case !slices.Contains(scheduleKinds, s.Kind):
		return fmt.Errorf("schedule: there is no kind %q; there are %s", s.Kind, strings.Join(scheduleKinds, ", "))
	case s.Warmup < 0 || s.Total < 0 || s.Every < 0 || s.Scale < 0 || s.Stable < 0 || s.Decay < 0:
		return fmt.Errorf("schedule %s: numbers of iterations must not be negative", s)
	case s.Log && s.Warmup == 1:
		return fmt.Errorf("schedule %s: a warm-up along a logarithm needs 2 iterations at least", s)
	case !fraction(s.Start) || !fraction(s.Floor):
		return fmt.Errorf("schedule %s: start %v and floor %v are factors between 0 and 1", s, s.Start, s.Floor)
	case !positive(s.MinLR) || !positive(s.Cycles) || !positive(s.Power):
		return fmt.Errorf("schedule %s: min_lr, num_cycles and power are finite and not negative", s)
	case s.Ends() && (s.Total == 0 || s.Total < s.Warmup):
		return fmt.Errorf("schedule %s: total is %d, warm-up %d; set total to the number of iterations, not less than the warm-up", s, s.Total, s.Warmup)
	case s.Kind == Step && (s.Every == 0 || !(s.Gamma > 0) || math.IsInf(s.Gamma, 0)):
		return fmt.Errorf("schedule %s: every is %d and gamma %v; both must be above 0", s, s.Every, s.Gamma)
	case s.Kind == StableDecay && s.Decay == 0:
		return fmt.Errorf("schedule %s: give the length of the fall at the end, num_decay_steps=N", s)
	case s.Kind == StableDecay && s.Stable == 0 && s.Warmup+s.Decay > s.Total:
		return fmt.Errorf("schedule %s: a warm-up of %d and num_decay_steps=%d are more than the %d iterations in all; make one shorter", s, s.Warmup, s.Decay, s.Total)
	case !curve(s.Rise) || !curve(s.Fall):
		return fmt.Errorf("schedule %s: warmup_type and decay_type are linear, cosine or 1-sqrt", s)
	}
	return nil
}

// Factor is what the rate is multiplied by in iteration i, counted from 0.
func (s Schedule) Factor(i int) float64 {
	if i < s.Warmup {
		return s.rising(i)
	}
	done := min(float64(i-s.Warmup)/float64(max(s.Total-s.Warmup, 1)), 1)
	switch s.Kind {
	case Linear:
		return s.aboveFloor(1 - done)
	case Cosine:
		return s.aboveFloor(cosine(cmp.Or(s.Cycles, 0.5), done))
	case CosineSooner:
		return s.aboveFloor(cosine(cmp.Or(s.Cycles, 0.5), min(float64(i-s.Warmup+1)/float64(max(s.Total-s.Warmup, 1)), 1)))
	case Restarts:
		if done >= 1 {
			return 0
		}
		return cosine(0.5, math.Mod(cmp.Or(s.Cycles, 1)*done, 1))
	case Polynomial:
		return s.aboveFloor(math.Pow(1-done, cmp.Or(s.Power, 1)))
	case InverseSqrt:
		scale := cmp.Or(s.Scale, s.Warmup, 10000)
		return 1 / math.Sqrt(float64(i+scale-s.Warmup)/float64(scale))
	case StableDecay:
		stable := cmp.Or(s.Stable, s.Total-s.Warmup-s.Decay)
		fallen := float64(max(i-s.Warmup-stable, 0)) / float64(s.Decay)
		if fallen >= 1 {
			return s.Floor
		}
		return s.aboveFloor(fall(cmp.Or(s.Fall, Cosine), cmp.Or(s.Cycles, 0.5), fallen))
	case Step:
		return math.Pow(s.Gamma, float64((i-s.Warmup)/s.Every))
	}
	return 1
}

// rising is the factor in iteration i of the warm-up.
func (s Schedule) rising(i int) float64 {
	risen := float64(i) / float64(s.Warmup)
	switch {
	case s.Kind == CosineSooner && s.Start == 0:
		return float64(i+1) / float64(s.Warmup)
	case s.Kind == CosineSooner:
		risen = float64(i) / float64(max(s.Warmup-1, 1))
	case s.Kind == StableDecay:
		return s.aboveFloor(fall(cmp.Or(s.Rise, Linear), 0.5, 1-risen)) // it rises as it falls, read backwards
	case s.Log:
		risen = math.Log(float64(max(i, 1))) / math.Log(float64(s.Warmup))
	}
	return s.Start + (1-s.Start)*risen
}

// aboveFloor is a factor between the floor and 1.
func (s Schedule) aboveFloor(factor float64) float64 {
	return max(0, s.Floor+(1-s.Floor)*factor)
}

// cosine is the height of so many waves that begin at 1, after a share of them.
func cosine(waves, done float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*waves*2*done)) }

// inverseRoot is the curve of warmup_stable_decay that is steep at its upper end.
const inverseRoot = "1-sqrt"

// fall is the height of a curve from 1 to 0, after a share of it.
func fall(curve string, waves, done float64) float64 {
	switch curve {
	case Linear:
		return 1 - done
	case inverseRoot:
		return 1 - math.Sqrt(done)
	}
	return cosine(waves, done)
}
