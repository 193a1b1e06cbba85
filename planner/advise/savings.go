package advise

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/planner/search"
	"spillway/planner/strategy"
	"spillway/quant"
)

// Setting is everything that a saving may change about a run.
type Setting struct {
	Train               bool
	MicroBatchSize, Seq int64
	MicroBatches        int
	Level               strategy.Level
	OffloadState        bool // optimizer state is stored on the host
	OffloadActivations  bool // what waits for the backward waits on the host
	StreamWeights       bool // weights are stored on the host
	HasDisk             bool // there is a disk tier
	UseDisk             bool // what would be stored on the host is stored on the disk
	// Precision computed in; below F32 there are master weights.
	Precision  dtype.Type
	StateType  dtype.Type // of optimizer state; Invalid if there is none
	LoRARank   int64      // of adapters; 0 trains all weights
	FrozenType dtype.Type // of frozen linear weights; Invalid: as computed
}

// Saving is a change for less memory, planned here.
type Saving struct {
	Name string `json:"name"`
	// Changes says what is learned differently; "" where only speed changes.
	Changes string `json:"changes,omitempty"`
	// Skipped says why there is nothing to change; the rest is then empty.
	Skipped string `json:"skipped,omitempty"`
	Alone   Usage  `json:"alone"`       // this change and no other
	SoFar   Usage  `json:"so_far"`      // and all before it
	Saves   int64  `json:"saves_bytes"` // of the device, by itself
	// Costs is how much longer an iteration takes by itself, in seconds.
	Costs float64 `json:"costs_seconds"`
}

// Usage is what a setting takes, were there memory for it.
type Usage struct {
	Device       int64   `json:"device_bytes"`
	Host         int64   `json:"host_bytes"`
	Disk         int64   `json:"disk_bytes,omitempty"`
	Seconds      float64 `json:"step_seconds"`
	TokensPerSec float64 `json:"tokens_per_second"`
	Fits         bool    `json:"fits"`
}

// Savings plans the setting as it is, then every saving by itself and together with those before
// it, on the first device of the site. The function turns a setting into a request: adapters or
// another precision may need another trace.
func Savings(start Setting, request func(Setting) (Request, error)) (Usage, []Saving, error) {
	base, err := usageOf(start, request)
	if err != nil {
		return base, nil, err
	}
	list, far := []Saving{}, start
	for _, r := range savingRules {
		planned := Saving{Name: r.name, Changes: r.changes}
		if far, err = planned.measure(r, start, far, request); err != nil {
			return base, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if planned.Skipped == "" {
			planned.Saves, planned.Costs = base.Device-planned.Alone.Device, planned.Alone.Seconds-base.Seconds
		}
		list = append(list, planned)
	}
	return base, list, nil
}

// measure plans a saving from the start and from what the savings before it led to, and returns
// what it leads to.
func (p *Saving) measure(r savingRule, start, far Setting, request func(Setting) (Request, error)) (Setting, error) {
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
	if p.Alone, err = usageOf(alone, request); err != nil {
		return far, err
	}
	p.SoFar, err = usageOf(far, request)
	return far, err
}

// savingRule is a change. Apply gives the changed setting, or says why there is nothing to change.
type savingRule struct {
	name     string
	changes  string
	training bool // it is about training only
	apply    func(Setting) (Setting, string)
}

// savingRules in the order in which people try them: first what changes nothing but speed, then
// what changes numbers, what is learned, and the data.
var savingRules = []savingRule{
	{name: "micro-batches of 1, accumulated", apply: func(s Setting) (Setting, string) {
		if s.MicroBatchSize == 1 {
			return s, "micro-batches have 1 sequence already"
		}
		s.MicroBatches, s.MicroBatchSize = s.MicroBatches*int(s.MicroBatchSize), 1
		return s, ""
	}},
	{name: "checkpointing of cheap values", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = max(s.Level, strategy.SaveMatmuls)
		return s, ""
	}},
	{name: "checkpointing of all but attention", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = max(s.Level, strategy.SaveAttention)
		return s, ""
	}},
	{name: "full checkpointing", training: true, apply: func(s Setting) (Setting, string) {
		s.Level = strategy.SaveNone
		return s, ""
	}},
	{name: "optimizer offload", training: true, apply: func(s Setting) (Setting, string) {
		s.OffloadState = true
		return s, ""
	}},
	{name: "activation offload", training: true, apply: func(s Setting) (Setting, string) {
		s.OffloadActivations = true
		return s, ""
	}},
	{name: "weight streaming", apply: func(s Setting) (Setting, string) {
		s.StreamWeights = true
		return s, ""
	}},
	{name: "disk instead of host memory", apply: func(s Setting) (Setting, string) {
		if !s.HasDisk {
			return s, "the machine has no disk tier"
		}
		s.UseDisk, s.StreamWeights, s.OffloadState = true, true, s.Train
		return s, ""
	}},
	{name: "bf16 instead of fp32", changes: "matmuls are rounded to 8 bits, master weights stay in fp32", apply: func(s Setting) (Setting, string) {
		if s.Precision != dtype.F32 {
			return s, fmt.Sprintf("it is %v already", s.Precision)
		}
		s.Precision = dtype.BF16
		return s, ""
	}},
	{name: "8-bit optimizer state", training: true, changes: "optimizer state is rounded to 256 values per block of 256", apply: func(s Setting) (Setting, string) {
		if s.StateType == dtype.Invalid {
			return s, "the optimizer has no state"
		}
		if s.StateType == quant.Dyn8 {
			return s, "it is in 8 bits already"
		}
		s.StateType = quant.Dyn8
		return s, ""
	}},
	{name: fmt.Sprintf("LoRA of rank %d", usualRank), training: true, changes: "only adapters learn", apply: func(s Setting) (Setting, string) {
		if s.LoRARank > 0 {
			return s, "only adapters are trained already"
		}
		s.LoRARank = usualRank
		return s, ""
	}},
	{name: fmt.Sprintf("adapters of rank %d", lowRank), training: true, changes: "adapters can learn less", apply: func(s Setting) (Setting, string) {
		if s.LoRARank == 0 {
			return s, "there are no adapters"
		}
		if s.LoRARank <= lowRank {
			return s, fmt.Sprintf("adapters have rank %d already", s.LoRARank)
		}
		s.LoRARank = lowRank
		return s, ""
	}},
	{name: "QLoRA: frozen weights in 4 bits", training: true, changes: "only adapters learn, and frozen weights are rounded to 16 values", apply: func(s Setting) (Setting, string) {
		if s.FrozenType != dtype.Invalid {
			return s, fmt.Sprintf("frozen weights are %v already", s.FrozenType)
		}
		s.FrozenType = quant.NF4
		if s.LoRARank == 0 {
			s.LoRARank = usualRank
		}
		return s, ""
	}},
	{name: "sequences half as long", changes: "less context, half the tokens per step", apply: func(s Setting) (Setting, string) {
		if s.Seq < 2*shortestSeq {
			return s, fmt.Sprintf("sequences have %d positions", s.Seq)
		}
		s.Seq /= 2
		return s, ""
	}},
}

const (
	usualRank   = 16 // what the guides begin with
	lowRank     = 4
	shortestSeq = 64
)

// boundless is more memory than any plan takes, and far from overflowing.
const boundless = 1 << 52

// usageOf plans one setting with no limit on memory and compares it with the site.
func usageOf(s Setting, request func(Setting) (Request, error)) (t Usage, err error) {
	r, err := request(s)
	if err != nil {
		return t, err
	}
	m, err := r.Trace(s.MicroBatchSize, s.Seq)
	if err != nil {
		return t, err
	}
	site, choose := r.Site, s.choose()
	site.Budget, site.Budgets, site.HostBudget, site.Disk.Budget = boundless, nil, boundless, boundless
	r.Goal.MicroBatches = s.MicroBatches
	p, err := search.Build(m, r.Goal, site, choose)
	if err != nil {
		return t, err
	}
	n := search.DemandOf(p, r.Site.SharedMemory, 1)
	t.Device, t.Host, t.Disk = n.Device, n.Host, n.Disk
	t.Seconds, t.TokensPerSec = p.Forecast.StepSeconds, p.Forecast.TokensPerSec
	t.Fits = t.Device <= r.Site.DeviceBudget(0) && t.Host <= r.Site.HostBudget && t.Disk <= r.Site.Disk.Budget
	return t, nil
}

// choose treats all slabs and blocks as the setting says.
func (s Setting) choose() func(slabs, blocks int) strategy.Choice {
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(s.StreamWeights, s.OffloadState, s.Level, 2)(slabs, blocks)
		c.OffloadedActivations, c.OnDisk = allOf(s.OffloadActivations, blocks), allOf(s.UseDisk, slabs)
		return c
	}
}

func allOf(mark bool, n int) []bool { return slices.Repeat([]bool{mark}, n) }
