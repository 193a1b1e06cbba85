package optim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The kinds of schedule: what follows the warm-up.
const (
	Constant = "constant" // stay
	Linear   = "linear"   // fall in a line to the floor
	Cosine   = "cosine"   // fall along half a cosine to the floor
	Step     = "step"     // multiply by Gamma every so many iterations
)

var scheduleKinds = []string{Constant, Linear, Cosine, Step}

// Schedule is the learning rate over the iterations, as a factor of the
// optimizer's own rate. Every kind may begin with a warm-up: a line from Start up
// to 1. The formulas are those of transformers, and with Start, Floor and Gamma
// those of PyTorch's LinearLR, CosineAnnealingLR and StepLR; but past Total the
// rate stays at the floor, where theirs climb again.
type Schedule struct {
	Kind   string  `json:"kind"`
	Warmup int     `json:"warmup,omitempty"` // iterations
	Total  int     `json:"total,omitempty"`  // iterations in all, for linear and cosine
	Start  float64 `json:"start,omitempty"`  // factor at iteration 0 of the warm-up
	Log    bool    `json:"log,omitempty"`    // the warm-up rises with the logarithm, fast at first, as DeepSpeed's
	Floor  float64 `json:"floor,omitempty"`  // factor at the end, for linear and cosine
	Every  int     `json:"every,omitempty"`  // for step
	Gamma  float64 `json:"gamma,omitempty"`  // for step
}

func (s *Schedule) options() []option {
	return []option{
		{"warmup", &s.Warmup, false}, {"total", &s.Total, false}, {"start", &s.Start, false}, {"log", &s.Log, false}, {"floor", &s.Floor, false}, {"every", &s.Every, false}, {"gamma", &s.Gamma, false},
	}
}

func defaultSchedule(kind string) Schedule {
	s := Schedule{Kind: kind}
	if kind == Step {
		s.Gamma = 0.1 // PyTorch's
	}
	return s
}

// otherSchedules are what comes nearest to schedules of transformers that there are none of.
var otherSchedules = map[string]string{
	"cosine_with_min_lr": "cosine:floor=0.1, whose floor is a share of the peak", "polynomial": "linear, with floor= for the share of the peak at the end",
	"cosine_with_restarts": "cosine", "reduce_lr_on_plateau": "step:every=N", "inverse_sqrt": "cosine",
}

// ParseSchedule reads "cosine:warmup=100,total=1000,floor=0.1". The total may be
// left out here and set later, but before Check.
func ParseSchedule(text string) (Schedule, error) {
	kind, tail, _ := strings.Cut(text, ":")
	s := defaultSchedule(strings.ToLower(strings.TrimSpace(kind)))
	if s.Kind == "constant_with_warmup" { // which is constant with a warm-up, of none where none is given
		s.Kind = Constant
	}
	if !slices.Contains(scheduleKinds, s.Kind) {
		instead := ""
		if other := otherSchedules[s.Kind]; other != "" {
			instead = ": take " + other
		}
		return Schedule{}, fmt.Errorf("schedule %q: there is no kind %q; there are %s%s", text, kind, strings.Join(scheduleKinds, ", "), instead)
	}
	if err := readOptions(s.options(), tail); err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", text, err)
	}
	return s, nil
}

// String writes the schedule as ParseSchedule reads it.
func (s Schedule) String() string {
	d := defaultSchedule(s.Kind)
	return writeOptions(s.Kind, s.options(), d.options())
}

// Check refuses a schedule that has no rate for some iteration.
func (s Schedule) Check() error {
	fraction := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case !slices.Contains(scheduleKinds, s.Kind):
		return fmt.Errorf("schedule: there is no kind %q; there are %s", s.Kind, strings.Join(scheduleKinds, ", "))
	case s.Warmup < 0 || s.Total < 0 || s.Every < 0:
		return fmt.Errorf("schedule %s: warmup %d, total %d and every %d must not be negative", s, s.Warmup, s.Total, s.Every)
	case s.Log && s.Warmup == 1:
		return fmt.Errorf("schedule %s: a warm-up along a logarithm needs 2 iterations at least", s)
	case !fraction(s.Start) || !fraction(s.Floor):
		return fmt.Errorf("schedule %s: start %v and floor %v are factors between 0 and 1", s, s.Start, s.Floor)
	case (s.Kind == Linear || s.Kind == Cosine) && (s.Total == 0 || s.Total < s.Warmup):
		return fmt.Errorf("schedule %s: total is %d, warm-up %d; set total to the number of iterations, not less than the warm-up", s, s.Total, s.Warmup)
	case s.Kind == Step && (s.Every == 0 || !(s.Gamma > 0) || math.IsInf(s.Gamma, 0)):
		return fmt.Errorf("schedule %s: every is %d and gamma %v; both must be above 0", s, s.Every, s.Gamma)
	}
	return nil
}

// Factor is what the rate is multiplied by in iteration i, counted from 0.
func (s Schedule) Factor(i int) float64 {
	if i < s.Warmup {
		risen := float64(i) / float64(s.Warmup)
		if s.Log {
			risen = math.Log(float64(max(i, 1))) / math.Log(float64(s.Warmup))
		}
		return s.Start + (1-s.Start)*risen
	}
	done := min(float64(i-s.Warmup)/float64(max(s.Total-s.Warmup, 1)), 1)
	switch s.Kind {
	case Linear:
		return s.Floor + (1-s.Floor)*(1-done)
	case Cosine:
		return s.Floor + (1-s.Floor)*0.5*(1+math.Cos(math.Pi*done))
	case Step:
		return math.Pow(s.Gamma, float64((i-s.Warmup)/s.Every))
	}
	return 1
}
