package optim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The kinds of schedule: what follows the warm-up. Those of transformers have its names.
const (
	Constant     = "constant"                  // stay
	Linear       = "linear"                    // fall in a line to the floor
	Cosine       = "cosine"                    // fall along half a cosine to the floor
	Restarts     = "cosine_with_restarts"      // fall along half a cosine, Cycles times
	CosineSooner = "cosine_warmup_with_min_lr" // Cosine one iteration earlier: the first of the warm-up trains too
	Polynomial   = "polynomial"                // fall along a power of what is left to the floor
	InverseSqrt  = "inverse_sqrt"              // fall with the root of the iterations
	StableDecay  = "warmup_stable_decay"       // stay, and fall to the floor in the last Decay iterations
	Step         = "step"                      // multiply by Gamma every so many iterations
)

var scheduleKinds = []string{Constant, Linear, Cosine, Restarts, CosineSooner, Polynomial, InverseSqrt, StableDecay, Step}

// ScheduleKinds lists the kinds of schedule.
func ScheduleKinds() []string { return slices.Clone(scheduleKinds) }

// Schedule is the learning rate over the iterations, as a factor of the
// optimizer's own rate. Every kind may begin with a warm-up: a line from Start up
// to 1. The formulas are those of transformers, and with Start, Floor and Gamma
// those of PyTorch's LinearLR, CosineAnnealingLR and StepLR; but past Total the
// rate stays at the floor, where theirs climb again.
type Schedule struct {
	Kind   string  `json:"kind"`
	Warmup int     `json:"warmup,omitempty"` // iterations
	Total  int     `json:"total,omitempty"`  // iterations in all, for the kinds that end
	Start  float64 `json:"start,omitempty"`  // factor at iteration 0 of the warm-up
	Log    bool    `json:"log,omitempty"`    // the warm-up rises with the logarithm, fast at first, as DeepSpeed's
	Floor  float64 `json:"floor,omitempty"`  // factor at the end
	// MinLR is the floor as a learning rate; Over makes a factor of it. 0: Floor counts.
	MinLR  float64 `json:"min_lr,omitempty"`
	Every  int     `json:"every,omitempty"`      // for step
	Gamma  float64 `json:"gamma,omitempty"`      // for step
	Cycles float64 `json:"num_cycles,omitempty"` // waves of cosines, 0.5 is half of one; for restarts how often it falls. 0: 0.5, and 1 for restarts
	Power  float64 `json:"power,omitempty"`      // for polynomial; 0: 1
	Scale  int     `json:"timescale,omitempty"`  // iterations, for inverse_sqrt; 0: the warm-up, or 10000 without one
	// Stable and Decay are the iterations between the warm-up and the fall, and of the fall, for
	// warmup_stable_decay. A Stable of 0 is what Total leaves.
	Stable int `json:"num_stable_steps,omitempty"`
	Decay  int `json:"num_decay_steps,omitempty"`
	// Rise and Fall are the curves of warmup_stable_decay: linear, cosine or 1-sqrt. "": linear, and cosine.
	Rise string `json:"warmup_type,omitempty"`
	Fall string `json:"decay_type,omitempty"`
}

// options are those that the kind of the schedule has, in the same order for the same kind.
func (s *Schedule) options() []option {
	warmup, total, floor := option{"warmup", &s.Warmup, false}, option{"total", &s.Total, false}, option{"floor", &s.Floor, false}
	start, log, cycles := option{"start", &s.Start, false}, option{"log", &s.Log, false}, option{"num_cycles", &s.Cycles, false}
	least := option{"min_lr", &s.MinLR, false}
	switch s.Kind {
	case Linear:
		return []option{warmup, total, start, log, floor}
	case Cosine:
		return []option{warmup, total, start, log, floor, least, cycles}
	case Restarts:
		return []option{warmup, total, start, log, cycles}
	case CosineSooner:
		return []option{warmup, total, start, floor, least, cycles}
	case Polynomial:
		return []option{warmup, total, start, log, floor, {"lr_end", &s.MinLR, false}, {"power", &s.Power, false}}
	case InverseSqrt:
		return []option{warmup, start, log, {"timescale", &s.Scale, false}}
	case StableDecay:
		return []option{warmup, total, floor, cycles, {"num_stable_steps", &s.Stable, false}, {"num_decay_steps", &s.Decay, false}, {"warmup_type", &s.Rise, false}, {"decay_type", &s.Fall, false}}
	case Step:
		return []option{warmup, start, log, {"every", &s.Every, false}, {"gamma", &s.Gamma, false}}
	}
	return []option{warmup, start, log}
}

func defaultSchedule(kind string) Schedule {
	s := Schedule{Kind: kind}
	switch kind {
	case Step:
		s.Gamma = 0.1 // PyTorch's
	case Polynomial:
		s.MinLR = 1e-7 // transformers'
	}
	return s
}

// theirSchedules are names that transformers has for kinds of ours.
var theirSchedules = map[string]string{"constant_with_warmup": Constant, "cosine_with_min_lr": Cosine}

// theirOptions are names that transformers has for options of ours.
var theirOptions = map[string]string{"min_lr_rate": "floor", "min_lr_ratio": "floor", "warmup_lr_rate": "start"}

// otherSchedules are what comes nearest to schedules of transformers that there are none of: they follow
// what the loss does.
var otherSchedules = map[string]string{"reduce_lr_on_plateau": "step:every=N", "greedy": "cosine"}

// ParseSchedule reads "cosine:warmup=100,total=1000,floor=0.1", and what transformers calls a schedule and its
// lr_scheduler_kwargs: "polynomial:lr_end=1e-6,power=2". The total may be left out here and set later, but before
// Check.
func ParseSchedule(text string) (Schedule, error) {
	kind, tail, _ := strings.Cut(text, ":")
	name := strings.ToLower(strings.TrimSpace(kind))
	s := defaultSchedule(cmp.Or(theirSchedules[name], name))
	if !slices.Contains(scheduleKinds, s.Kind) {
		instead := ""
		if other := otherSchedules[s.Kind]; other != "" {
			instead = ": that one follows the loss; take " + other
		}
		return Schedule{}, fmt.Errorf("schedule %q: there is no kind %q; there are %s%s", text, kind, strings.Join(scheduleKinds, ", "), instead)
	}
	given := map[string]bool{}
	items := strings.Split(tail, ",")
	for i, item := range items {
		option, value, valued := strings.Cut(item, "=")
		option = strings.TrimSpace(option)
		if ours := theirOptions[option]; ours != "" && valued {
			option, items[i] = ours, ours+"="+value
		}
		given[option] = true
	}
	if given["floor"] && s.Kind == Polynomial && !given["lr_end"] {
		s.MinLR = 0
	}
	err := readOptions(s.options(), strings.Join(items, ","))
	switch {
	case err != nil:
	case given["floor"] && s.MinLR != 0:
		err = fmt.Errorf("it has a floor of %v as a share of the peak, and of %v as a learning rate; keep one", s.Floor, s.MinLR)
	case name == "cosine_with_min_lr" && !given["floor"] && !given["min_lr"]:
		err = fmt.Errorf("it has no lowest rate; give one with min_lr_rate=0.1, a share of the peak, or min_lr=1e-6")
	case given["num_cycles"] && s.Cycles == 0 || given["power"] && s.Power == 0 || given["timescale"] && s.Scale == 0 || s.Kind == CosineSooner && given["start"] && s.Start == 0:
		err = fmt.Errorf("num_cycles, power, timescale and warmup_lr_rate are above 0")
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", text, err)
	}
	return s, nil
}

// Ends says whether the schedule needs to know how many iterations there are in all.
func (s Schedule) Ends() bool {
	return slices.Contains([]string{Linear, Cosine, Restarts, CosineSooner, Polynomial}, s.Kind) || s.Kind == StableDecay && s.Stable == 0
}

// Over is the schedule over so many iterations, where it has no total of its own, of a peak learning rate. One without
// a kind is constant.
func (s Schedule) Over(iterations int, lr float64) (Schedule, error) {
	s.Kind = cmp.Or(s.Kind, Constant)
	if s.Total == 0 && s.Ends() {
		s.Total = iterations
	}
	if s.MinLR > 0 {
		if !(s.MinLR < lr) {
			return s, fmt.Errorf("schedule %s: it ends at a learning rate of %v, which is not below the peak of %v; lower the one or raise the other", s, s.MinLR, lr)
		}
		s.Floor, s.MinLR = s.MinLR/lr, 0
	}
	return s, nil
}

// String writes the schedule as ParseSchedule reads it.
func (s Schedule) String() string {
	d := defaultSchedule(s.Kind)
	return writeOptions(s.Kind, s.options(), d.options())
}
