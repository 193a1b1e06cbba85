package advise

import (
	"cmp"
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
		planned, alone := Saving{Name: r.name, Changes: r.changes, Skipped: r.skipped(start)}, start
		list = append(list, planned)
		if planned.Skipped != "" {
			continue
		}
		r.apply(&alone)
		if r.skipped(far) == "" {
			r.apply(&far)
		}
		if planned.Alone, err = usageOf(alone, request); err == nil {
			planned.SoFar, err = usageOf(far, request)
		}
		if err != nil {
			return base, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		planned.Saves, planned.Costs = base.Device-planned.Alone.Device, planned.Alone.Seconds-base.Seconds
		list[len(list)-1] = planned
	}
	return base, list, nil
}

// savingRule is a change of a setting.
type savingRule struct {
	name     string
	changes  string
	training bool                 // it is about training only
	skip     func(Setting) string // why there is nothing to change, "" where there is; nil: there always is
	apply    func(*Setting)
}

// skipped is why a rule changes nothing of a setting.
func (r savingRule) skipped(s Setting) string {
	switch {
	case r.training && !s.Train:
		return "nothing is trained"
	case r.skip == nil:
		return ""
	}
	return r.skip(s)
}

// when is a reason that counts where something is so.
func when(so bool, format string, args ...any) string {
	if !so {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// savingRules in the order in which people try them: first what changes nothing but speed, then
// what changes numbers, what is learned, and the data.
var savingRules = []savingRule{
	{
		name: "micro-batches of 1, accumulated",
		skip: func(s Setting) string { return when(s.MicroBatchSize == 1, "micro-batches have 1 sequence already") },
		apply: func(s *Setting) {
			s.MicroBatches, s.MicroBatchSize = s.MicroBatches*int(s.MicroBatchSize), 1
		},
	},
	{name: "checkpointing of cheap values", training: true, apply: func(s *Setting) { s.Level = max(s.Level, strategy.SaveMatmuls) }},
	{name: "checkpointing of all but attention", training: true, apply: func(s *Setting) { s.Level = max(s.Level, strategy.SaveAttention) }},
	{name: "full checkpointing", training: true, apply: func(s *Setting) { s.Level = strategy.SaveNone }},
	{name: "optimizer offload", training: true, apply: func(s *Setting) { s.OffloadState = true }},
	{name: "activation offload", training: true, apply: func(s *Setting) { s.OffloadActivations = true }},
	{name: "weight streaming", apply: func(s *Setting) { s.StreamWeights = true }},
	{
		name:  "disk instead of host memory",
		skip:  func(s Setting) string { return when(!s.HasDisk, "the machine has no disk tier") },
		apply: func(s *Setting) { s.UseDisk, s.StreamWeights, s.OffloadState = true, true, s.Train },
	},
	{
		name: "bf16 instead of fp32", changes: "matmuls are rounded to 8 bits, master weights stay in fp32",
		skip:  func(s Setting) string { return when(s.Precision != dtype.F32, "it is %v already", s.Precision) },
		apply: func(s *Setting) { s.Precision = dtype.BF16 },
	},
	{
		name: "8-bit optimizer state", training: true, changes: "optimizer state is rounded to 256 values per block of 256",
		skip: func(s Setting) string {
			return cmp.Or(when(s.StateType == dtype.Invalid, "the optimizer has no state"), when(s.StateType == quant.Dyn8, "it is in 8 bits already"))
		},
		apply: func(s *Setting) { s.StateType = quant.Dyn8 },
	},
	{
		name: fmt.Sprintf("LoRA of rank %d", usualRank), training: true, changes: "only adapters learn",
		skip:  func(s Setting) string { return when(s.LoRARank > 0, "only adapters are trained already") },
		apply: func(s *Setting) { s.LoRARank = usualRank },
	},
	{
		name: fmt.Sprintf("adapters of rank %d", lowRank), training: true, changes: "adapters can learn less",
		skip: func(s Setting) string {
			return cmp.Or(when(s.LoRARank == 0, "there are no adapters"), when(s.LoRARank <= lowRank, "adapters have rank %d already", s.LoRARank))
		},
		apply: func(s *Setting) { s.LoRARank = lowRank },
	},
	{
		name: "QLoRA: frozen weights in 4 bits", training: true, changes: "only adapters learn, and frozen weights are rounded to 16 values",
		skip: func(s Setting) string {
			return when(s.FrozenType != dtype.Invalid, "frozen weights are %v already", s.FrozenType)
		},
		apply: func(s *Setting) { s.FrozenType, s.LoRARank = quant.NF4, cmp.Or(s.LoRARank, usualRank) },
	},
	{
		name: "sequences half as long", changes: "less context, half the tokens per step",
		skip:  func(s Setting) string { return when(s.Seq < 2*shortestSeq, "sequences have %d positions", s.Seq) },
		apply: func(s *Setting) { s.Seq /= 2 },
	},
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
	choose := func(slabs, blocks int) strategy.Choice { // all slabs and blocks alike
		c := strategy.Uniform(s.StreamWeights, s.OffloadState, s.Level, 2)(slabs, blocks)
		c.OffloadedActivations, c.OnDisk = slices.Repeat([]bool{s.OffloadActivations}, blocks), slices.Repeat([]bool{s.UseDisk}, slabs)
		return c
	}
	site := r.Site
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
