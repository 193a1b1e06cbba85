package planner

import (
	"fmt"
	"slices"

	"spillway/dtype"
)

// Setting is everything the ladder may change about a run.
type Setting struct {
	Train     bool
	Rows, Seq int64
	Micros    int
	Level     Level
	Offload   bool // optimizer state rests on the host
	Spill     bool // what waits for the backward waits on the host
	Stream    bool // weights rest on the host
	HasDisk   bool // there is a disk tier
	Disk      bool // what rests on the host rests on the disk instead
	// Precision computed in; below F32 there are full-precision masters.
	Precision dtype.Type
	Storage   dtype.Type // of what the optimizer keeps; Invalid if it keeps nothing
	Rank      int64      // of adapters beside frozen weights; 0 trains all weights
	Base      dtype.Type // the frozen products rest in; Invalid: as computed
}

// Rung is a step of the ladder, planned here: a change for less memory.
type Rung struct {
	Name string `json:"name"`
	// Changes says what is learned differently; "" where only speed changes.
	Changes string `json:"changes,omitempty"`
	// Skipped says why there is nothing to change; the rest is then empty.
	Skipped string `json:"skipped,omitempty"`
	Alone   Taken  `json:"alone"`       // this change and no other
	With    Taken  `json:"so_far"`      // and all before it
	Saves   int64  `json:"saves_bytes"` // of the device, by itself
	// Costs is how much longer an iteration takes by itself, in seconds.
	Costs float64 `json:"costs_seconds"`
}

// Taken is what a setting takes, were there room for it.
type Taken struct {
	Device       int64   `json:"device_bytes"`
	Host         int64   `json:"host_bytes"`
	Disk         int64   `json:"disk_bytes,omitempty"`
	Seconds      float64 `json:"step_seconds"`
	TokensPerSec float64 `json:"tokens_per_second"`
	Fits         bool    `json:"fits"`
}

// Ladder plans the setting as it is, then every rung by itself and together with
// the rungs before it, on the first device of the site. Request turns a setting into
// one: that adapters or another precision need another trace is its business.
func Ladder(start Setting, request func(Setting) (Request, error)) (Taken, []Rung, error) {
	base, err := take(start, request)
	if err != nil {
		return base, nil, err
	}
	list, far := []Rung{}, start
	for _, r := range rungs {
		planned := Rung{Name: r.name, Changes: r.changes}
		if far, err = planned.plan(r, start, far, request); err != nil {
			return base, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if planned.Skipped == "" {
			planned.Saves, planned.Costs = base.Device-planned.Alone.Device, planned.Alone.Seconds-base.Seconds
		}
		list = append(list, planned)
	}
	return base, list, nil
}

// plan climbs one rung from the start and from where the ladder got so far, and
// returns where it gets.
func (p *Rung) plan(r rung, start, far Setting, request func(Setting) (Request, error)) (Setting, error) {
	alone, why := r.apply(start)
	if r.training && !start.Train {
		why = "nothing is trained"
	}
	if why != "" {
		p.Skipped = why
		return far, nil
	}
	if next, why := r.apply(far); why == "" {
		far = next
	}
	var err error
	if p.Alone, err = take(alone, request); err != nil {
		return far, err
	}
	p.With, err = take(far, request)
	return far, err
}

// rung is a change. Apply gives the changed setting, or says why there is nothing to
// change.
type rung struct {
	name     string
	changes  string
	training bool // it is about training only
	apply    func(Setting) (Setting, string)
}

// rungs in the order people climb: first what changes nothing but speed, then what
// changes numbers, what is learned, and the data.
var rungs = []rung{
	{name: "micro-batches of 1, accumulated", apply: func(s Setting) (Setting, string) {
		if s.Rows == 1 {
			return s, "micro-batches have 1 sample already"
		}
		s.Micros, s.Rows = s.Micros*int(s.Rows), 1
		return s, ""
	}},
	{name: "checkpointing of cheap values", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = max(s.Level, KeepProducts)
		return s, ""
	}},
	{name: "checkpointing of all but attention", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = max(s.Level, KeepAttention)
		return s, ""
	}},
	{name: "full checkpointing", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = KeepNone
		return s, ""
	}},
	{name: "optimizer offload", training: true, apply: func(s Setting) (Setting, string) {
		s.Offload = true
		return s, ""
	}},
	{name: "activation offload", training: true, apply: func(s Setting) (Setting, string) {
		s.Spill = true
		return s, ""
	}},
	{name: "weight streaming", apply: func(s Setting) (Setting, string) {
		s.Stream = true
		return s, ""
	}},
	{name: "disk instead of host memory", apply: func(s Setting) (Setting, string) {
		if !s.HasDisk {
			return s, "the machine has no disk tier"
		}
		s.Disk, s.Stream, s.Offload = true, true, s.Train
		return s, ""
	}},
	{name: "bf16 instead of fp32", changes: "products are rounded to 8 bits, full-precision masters are kept", apply: func(s Setting) (Setting, string) {
		if s.Precision != dtype.F32 {
			return s, fmt.Sprintf("it is %v already", s.Precision)
		}
		s.Precision = dtype.BF16
		return s, ""
	}},
	{name: "8-bit optimizer state", training: true, changes: "what the optimizer keeps is rounded to 256 values per block of 256", apply: func(s Setting) (Setting, string) {
		if s.Storage == dtype.Invalid {
			return s, "the optimizer keeps nothing"
		}
		if s.Storage == dtype.Dyn8 {
			return s, "it is in 8 bits already"
		}
		s.Storage = dtype.Dyn8
		return s, ""
	}},
	{name: fmt.Sprintf("LoRA of rank %d", ladderRank), training: true, changes: "only adapters learn", apply: func(s Setting) (Setting, string) {
		if s.Rank > 0 {
			return s, "only adapters are trained already"
		}
		s.Rank = ladderRank
		return s, ""
	}},
	{name: fmt.Sprintf("adapters of rank %d", lowRank), training: true, changes: "adapters can learn less", apply: func(s Setting) (Setting, string) {
		if s.Rank == 0 {
			return s, "there are no adapters"
		}
		if s.Rank <= lowRank {
			return s, fmt.Sprintf("adapters have rank %d already", s.Rank)
		}
		s.Rank = lowRank
		return s, ""
	}},
	{name: "QLoRA: frozen weights in 4 bits", training: true, changes: "only adapters learn, beside weights rounded to 16 values", apply: func(s Setting) (Setting, string) {
		if s.Base != dtype.Invalid {
			return s, fmt.Sprintf("frozen weights are %v already", s.Base)
		}
		s.Base = dtype.NF4
		if s.Rank == 0 {
			s.Rank = ladderRank
		}
		return s, ""
	}},
	{name: "sequences half as long", changes: "less context, half the tokens per iteration", apply: func(s Setting) (Setting, string) {
		if s.Seq < 2*shortestSeq {
			return s, fmt.Sprintf("sequences have %d positions", s.Seq)
		}
		s.Seq /= 2
		return s, ""
	}},
}

const (
	ladderRank  = 16 // what the guides begin with
	lowRank     = 4
	shortestSeq = 64
)

// boundless is more memory than any plan takes, and far from overflowing.
const boundless = 1 << 52

// take plans one setting with no limit on memory and holds it against the site.
func take(s Setting, request func(Setting) (Request, error)) (t Taken, err error) {
	r, err := request(s)
	if err != nil {
		return t, err
	}
	m, err := r.Trace(s.Rows, s.Seq)
	if err != nil {
		return t, err
	}
	site, choose := r.Site, s.choose()
	site.Budget, site.Budgets, site.HostBudget, site.Disk.Budget = boundless, nil, boundless, boundless
	r.Goal.Micros = s.Micros
	p, err := Build(m, r.Goal, site, choose)
	if err != nil {
		return t, err
	}
	n := needs(p, r.Site.SharedPools, 1)
	t.Device, t.Host, t.Disk = n.device, n.host, n.disk
	t.Seconds, t.TokensPerSec = p.Forecast.StepSeconds, p.Forecast.TokensPerSec
	t.Fits = t.Device <= r.Site.budget(0) && t.Host <= r.Site.HostBudget && t.Disk <= r.Site.Disk.Budget
	return t, nil
}

// choose treats all slabs and blocks as the setting says.
func (s Setting) choose() func(slabs, blocks int) Choice {
	return func(slabs, blocks int) Choice {
		c := Alike(s.Stream, s.Offload, s.Level, 2)(slabs, blocks)
		c.Spilled, c.OnDisk = repeated(s.Spill, blocks), repeated(s.Disk, slabs)
		return c
	}
}

func repeated(mark bool, n int) []bool { return slices.Repeat([]bool{mark}, n) }
