package planner

import (
	"fmt"
	"slices"

	"spillway/plan"
)

// Compared is a strategy and what it takes here.
type Compared struct {
	Strategy string `json:"strategy"` // "cpu offload"
	// Detail is the best form of it that fits, else the leanest: "cpu offload, window
	// 2, 6 of 34 slabs streamed".
	Detail string `json:"detail,omitempty"`
	Fits   bool   `json:"fits"`
	// Device is what it takes of the device that holds most, Host of host memory.
	Device  int64               `json:"device_bytes"`
	Host    int64               `json:"host_bytes"`
	Disk    int64               `json:"disk_bytes,omitempty"`
	Peak    map[plan.Tier]int64 `json:"peak_bytes,omitempty"` // of all devices together
	Seconds float64             `json:"step_seconds,omitempty"`
	Bound   string              `json:"bound,omitempty"`
	// Reason it does not fit, or cannot be here.
	Reason string `json:"reason,omitempty"`
	// Possible is false where the machine or the goal rules the strategy out.
	Possible bool `json:"possible"`
}

// Compare plans every strategy by itself and says what each takes: those of one
// device, then the ways to share the work of several.
func (r Request) Compare() ([]Compared, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, err
	}
	b, err := newBlueprint(m, r.Goal, r.Site)
	if err != nil {
		return nil, err
	}
	single := *b // what was traced and placed is shared
	single.site.Devices = 1
	var list []Compared
	for _, st := range strategies {
		if st.training && !b.training() {
			continue
		}
		one, err := compare(&single, st.name, withoutFirst(st.lines(&single)))
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	for _, w := range []way{shardedState, dataParallel, shardedData, splitModel, pipelined} {
		one, err := b.compareWay(w)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// strategies of one device, each with the lines of choices it consists of.
var strategies = []struct {
	name     string
	training bool // it helps in training only
	lines    func(b *blueprint) []family
}{
	{"standard", false, func(*blueprint) []family { return []family{{0, func(int) mix { return mix{} }}} }},
	{"checkpointing", true, func(b *blueprint) []family {
		return []family{{2 * len(b.model.Blocks), func(i int) mix { return mix{recompute: i} }}}
	}},
	{"activation offload", true, func(b *blueprint) []family {
		return []family{{len(b.model.Blocks), func(i int) mix { return mix{offloadedActivations: i} }}}
	}},
	{"optimizer offload", true, func(b *blueprint) (list []family) {
		for _, r := range b.amounts() {
			list = append(list, family{len(b.slabs.list), func(i int) mix { return mix{offloaded: i, recompute: r, prefetchStates: 1} }})
		}
		return b.withCPUUpdates(list)
	}},
	{"cpu offload", false, func(b *blueprint) (list []family) {
		for _, window := range []int{3, 2, 1} {
			for _, r := range b.amounts() {
				list = append(list, b.streaming(window, r, 0))
			}
		}
		if b.training() {
			list = append(list, b.streaming(2, 2*len(b.model.Blocks), len(b.model.Blocks)))
		}
		return b.withCPUUpdates(list)
	}},
	{"disk offload", false, func(b *blueprint) []family {
		if b.site.Disk.Budget == 0 {
			return nil
		}
		slabs := len(b.slabs.list)
		line := b.streaming(2, slices.Max(b.amounts()), 0)
		return []family{{slabs, func(i int) mix { m := line.mix(slabs); m.onDisk = i; return m }}}
	}},
}

// some leaves out the first choice of each line, which does nothing of what the line
// is about.
func withoutFirst(lines []family) (list []family) {
	for _, f := range lines {
		if f.size > 0 {
			list = append(list, family{f.size - 1, func(i int) mix { return f.mix(i + 1) }})
			continue
		}
		list = append(list, f)
	}
	return list
}

// streaming is the line along which more and more weights rest on the host, and
// with training all optimizer state.
func (b *blueprint) streaming(window, recompute, spilled int) family {
	m := mix{prefetch: window, recompute: recompute, offloadedActivations: spilled, prefetchStates: window - 1}
	if b.training() {
		m.offloaded = len(b.slabs.list)
	}
	return family{len(b.slabs.list), func(i int) mix { m.streamed = i; return m }}
}

// amounts of recomputing: nothing, cheap values, everything.
func (b *blueprint) amounts() []int {
	if !b.training() {
		return []int{0}
	}
	return []int{0, len(b.model.Blocks), 2 * len(b.model.Blocks)}
}

// compare finds the best of some lines.
func compare(b *blueprint, name string, lines []family) (Compared, error) {
	if len(lines) == 0 {
		return Compared{Strategy: name, Reason: "the machine has no disk tier"}, nil
	}
	s := newSearch(b.itself())
	for _, f := range lines {
		if err := s.try(f); err != nil {
			return Compared{}, err
		}
	}
	if s.best != nil {
		return s.compared(name, s.best), nil
	}
	err := s.findSmallest()
	return s.compared(name, s.smallest), err
}

func (s *search) compared(name string, c *candidate) Compared {
	one := Compared{Strategy: name, Detail: c.choice.title(), Fits: c.fits, Device: c.device, Host: c.host, Disk: c.disk, Peak: c.peak, Possible: true}
	if !c.fits {
		one.Reason = s.option(c, c).Reason
		return one
	}
	one.Seconds, one.Bound = c.forecast.StepSeconds, c.forecast.Bound
	return one
}

// compareWay finds the best plan in which several devices share the work one way,
// whatever else it does.
func (b *blueprint) compareWay(w way) (Compared, error) {
	s := newSearch(b.itself())
	one := Compared{Strategy: w.name()}
	switch n := s.devices(); {
	case n == 1:
		one.Reason = "the machine has one device"
	case w != splitModel && b.goal.MicroBatches < 2:
		one.Reason = fmt.Sprintf("it needs micro-batches for the %d devices to share, an iteration has one; accumulate %d", n, n)
	case w == shardedState && !b.training():
		one.Reason = "it is about gradients and optimizer state; without training it is data parallel"
	case w == pipelined && !b.training():
		one.Reason = "its order is one of training; without gradients it is model parallel"
	default:
		return compare(b, w.name(), s.families(w))
	}
	return one, nil
}

// name of a way, without numbers.
func (w way) name() string {
	return map[way]string{shardedState: "data parallel, whole gradients (ZeRO-1)", dataParallel: "data parallel (ZeRO-2)", shardedData: "sharded data parallel (ZeRO-3)", splitModel: "model parallel", pipelined: "pipeline"}[w]
}
