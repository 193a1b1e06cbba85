package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
)

// callTimes measures single calls on an open device when a forecast first asks for them, and
// stores them in the cache. A model has some dozens of different calls, each of which takes
// some milliseconds to measure; tables of shapes could only interpolate between them.
type callTimes struct {
	mu    sync.Mutex
	o     Options
	key   string
	dev   device.Device          // nil while it is closed
	bench *bench                 // nil until something is measured
	tf32  bool                   // how the known times were measured
	host  bool                   // the device is a CPU: long calls are not measured
	spent map[bool]time.Duration // on measuring, by waitsForArithmetic: long prompts leave time for steps

	known   map[string]machine.CallTime
	similar map[string][]sizedTime // of calls bound by memory, by what they have in common, sorted by bytes
	unknown map[string]bool        // those that could not be measured
	single  map[string]time.Time   // of a CPU: when calls were measured that were not confirmed yet
	// cached are the times of earlier processes, which count once a few were confirmed.
	cached    map[string]machine.CallTime
	confirmed map[bool]int // by waitsForArithmetic
	changed   bool
	forgotten bool
	mixture   *machine.CallTime // what calls take longer among others; nil until it is measured
}

// sizedTime is the time of a call with so many bytes of traffic.
type sizedTime struct {
	bytes int64
	machine.CallTime
}

const (
	// callSpan is how long the launches of one measurement take together.
	callSpan = 1500 * time.Microsecond
	// callRest is the most time between rows of matmuls.
	callRest = 3 * time.Millisecond
	// confirmations is how many cached times of matmuls a process measures again, of many rows and of
	// few, which wait for arithmetic and for memory; where one
	// is less than haunted of what is cached, the cache is from a busy minute.
	confirmations = 3
	haunted       = 0.85
	// near is how far apart two measured calls bound by memory may be for one between them to
	// be interpolated.
	near = 4

	// A CPU takes as long for a call as a step of the plan does. So it measures calls of at most so
	// much arithmetic and memory traffic, for a while; larger calls run at the rates of tables.
	cpuFlops = 100e9
	cpuBytes = 1 << 30
	cpuSpent = 4 * time.Second
	// cpuLong is what a call takes that a CPU does not repeat after its first runs.
	cpuLong = 100 * time.Millisecond
	// cpuLater is after how long a call is measured again when it is asked for again: other programs, and neighbours on
	// the same machine, slow a CPU down for some while.
	cpuLater = 300 * time.Millisecond
	// cpuDisturbed is how many times the shorter of two measurements the longer one is where other programs had the cores
	// in the longer one. Below, the two differ as steps of a run do.
	cpuDisturbed = 1.5
	// cpuSpan is callSpan of a CPU, which needs no rest: it has no clock to raise.
	cpuSpan = 400 * time.Microsecond
	// cpuPatience is that of measurements on a CPU that other programs use too.
	cpuPatience = 12
	// cpuCold is more than the caches of most CPUs hold, and cpuInner less than those of one core do.
	cpuCold, cpuInner = 128 << 20, 512 << 10
)

// newCallTimes reads what earlier processes have measured on a device.
func newCallTimes(dev device.Device, o Options) *callTimes {
	t := &callTimes{o: o, dev: dev, key: callKey(dev), host: dev.Info().OnHost, known: map[string]machine.CallTime{}, similar: map[string][]sizedTime{}, unknown: map[string]bool{}, single: map[string]time.Time{}, confirmed: map[bool]int{}, spent: map[bool]time.Duration{}}
	if e, err := o.load(t.key); err == nil {
		t.cached = e.Calls
		if extra, ok := t.cached[mixtureKey]; ok {
			t.mixture = &extra
		}
	}
	return t
}

// callKey names what the times of calls depend on: the device, and the kernels of this
// program.
func callKey(dev device.Device) string {
	program := ""
	if path, err := os.Executable(); err == nil {
		if info, err := os.Stat(path); err == nil {
			program = fmt.Sprintf("%d bytes of %v", info.Size(), info.ModTime().UTC())
		}
	}
	return strings.Join([]string{"calls", deviceKey(dev), program}, "|") + chosenKernels()
}

// within is callTimes for whoever may take so many bytes of the device, and reads so many in turn, 0 where that is not known: a
// cache may hold them.
type within struct {
	*callTimes
	bytes  int64
	reads  int64
	cached bool
}

const anyBytes = int64(1) << 62

func (t *callTimes) Within(bytes int64) machine.Calls { return within{callTimes: t, bytes: bytes} }

func (w within) Within(bytes int64) machine.Calls {
	w.bytes = bytes
	return w
}

// Among implements machine.Reader.
func (w within) Among(bytes int64) machine.Calls {
	w.reads, w.cached = bytes, w.host && bytes <= lastCache()*3/4
	return w
}

// Among implements machine.Reader.
func (t *callTimes) Among(bytes int64) machine.Calls {
	return within{callTimes: t, bytes: anyBytes}.Among(bytes)
}

// Time of a call, measured now if it was not before.
func (t *callTimes) Time(c op.Call) (machine.CallTime, bool) {
	return within{callTimes: t, bytes: anyBytes}.Time(c)
}

// Time is what a call takes among others.
func (w within) Time(c op.Call) (machine.CallTime, bool) {
	t := w.callTimes
	t.mu.Lock()
	defer t.mu.Unlock()
	took, ok := w.repeated(c)
	if t.mixture != nil && ok {
		if took.Launch += t.mixture.Launch; !c.Attr.Constant { // else its kernel begins before the last one has ended
			took.Device += t.mixture.Device
		}
	}
	return took, ok
}

// cachedPrefix begins the keys of times with weights that the last cache of a CPU holds.
const cachedPrefix = "cached "

// mixtureKey is that of the mixture among the cached times.
const mixtureKey = "mixture"

// repeated is what a call takes when it is launched again and again.
func (w within) repeated(c op.Call) (machine.CallTime, bool) {
	t := w.callTimes
	raw, err := json.Marshal(c)
	if err != nil || c.Empty() {
		return machine.CallTime{}, false
	}
	key, group := t.prefix()+string(raw), t.group(c)
	if w.cached {
		key = cachedPrefix + key
		if group != "" {
			group = cachedPrefix + group
		}
	}
	if known, ok := t.known[key]; ok {
		return w.again(key, c, known), true
	}
	if between, ok := t.interpolated(group, c.Cost().Bytes); ok {
		return between, true
	}
	if t.unknown[key] {
		return machine.CallTime{}, false
	}
	took, ok := w.fromCache(key, c)
	if !ok {
		if t.dev == nil || c.Traffic() > w.bytes || t.host && t.long(c) {
			return took, false
		}
		if took, err = w.measure(c); err != nil {
			t.unknown[key] = true
			return took, false
		}
		if t.changed = true; t.host {
			t.single[key] = stopwatch.Now()
		}
	}
	t.add(key, group, c, took)
	return took, true
}

// again measures a call of a CPU once more, a while after the first time, and gives what both say.
func (w within) again(key string, c op.Call, known machine.CallTime) machine.CallTime {
	t := w.callTimes
	first, single := t.single[key]
	if !single || t.dev == nil || stopwatch.Since(first) < cpuLater || t.spent[waitsForArithmetic(c)] > cpuSpent {
		return known
	}
	delete(t.single, key)
	if now, err := w.measure(c); err == nil {
		known, t.changed = twice(known, now), true
		t.known[key] = known
	}
	return known
}

// twice is the time of a call that was measured twice: the shorter one where the other was disturbed, else the mean. The
// shorter one of every call would add up to a step that is faster than any: of a sum of many, each has its lucky moment.
func twice(a, b machine.CallTime) machine.CallTime {
	if a.Device > b.Device {
		a, b = b, a
	}
	if float64(b.Device) > cpuDisturbed*float64(a.Device) {
		return a
	}
	return machine.CallTime{Device: (a.Device + b.Device) / 2, Launch: (a.Launch + b.Launch) / 2}
}

// anew lets a CPU measure calls for as long again.
func (t *callTimes) anew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.spent)
}

// add remembers the time of a call.
func (t *callTimes) add(key, group string, c op.Call, took machine.CallTime) {
	t.known[key] = took
	if group != "" {
		list, entry := t.similar[group], sizedTime{c.Cost().Bytes, took}
		at, _ := slices.BinarySearchFunc(list, entry.bytes, func(s sizedTime, n int64) int { return int(s.bytes - n) })
		t.similar[group] = slices.Insert(list, at, entry)
	}
}

// prefix tells calls apart that take another time where f32 operands are rounded.
func (t *callTimes) prefix() string {
	if rounds, can := t.dev.(device.TF32); can {
		t.tf32 = rounds.TF32()
	}
	if t.tf32 {
		return tf32 + " "
	}
	return ""
}

// group is what calls have in common whose time follows from their bytes: kind, attributes and
// element types, and the width of what is not an update. It is "" for matmuls and attention.
func (t *callTimes) group(c op.Call) string {
	if c.Cost().Matrix {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %+v", c.Kind, c.Attr)
	for _, in := range c.In {
		fmt.Fprintf(&b, " %v/%d", in.DType, len(in.Shape))
	}
	if updates := c.InPlace() != nil && !c.Kind.WholeParam(); !updates && len(c.In) > 0 && len(c.In[0].Shape) > 0 {
		fmt.Fprintf(&b, " of %d", c.In[0].Shape.Last())
	}
	return b.String()
}

// interpolated is the time of a call between two that were measured and are near.
func (t *callTimes) interpolated(group string, bytes int64) (machine.CallTime, bool) {
	list := t.similar[group]
	at, found := slices.BinarySearchFunc(list, bytes, func(s sizedTime, n int64) int { return int(s.bytes - n) })
	if found {
		return list[at].CallTime, true
	}
	if group == "" || at == 0 || at == len(list) || list[at].bytes > near*list[at-1].bytes {
		return machine.CallTime{}, false
	}
	low, high := list[at-1], list[at]
	share := float64(bytes-low.bytes) / float64(high.bytes-low.bytes)
	mix := func(a, b time.Duration) time.Duration { return a + time.Duration(share*float64(b-a)) }
	return machine.CallTime{Device: mix(low.Device, high.Device), Launch: mix(low.Launch, high.Launch)}, true
}

// fromCache is the time that an earlier process has measured. The first ones of matmuls are
// measured again: where they are faster now, all that is cached is forgotten.
func (w within) fromCache(key string, c op.Call) (machine.CallTime, bool) {
	t := w.callTimes
	took, ok := t.cached[key]
	if !ok || !c.Cost().Matrix || t.dev == nil || t.confirmed[waitsForArithmetic(c)] == confirmations {
		return took, ok
	}
	now, err := within{callTimes: t, bytes: anyBytes, reads: w.reads, cached: w.cached}.measure(c)
	if err != nil {
		return took, true
	}
	return t.confirm(waitsForArithmetic(c), took, now), true
}

// waitsForArithmetic says whether a call is a matmul of many rows. Those of few take as long as reading their weights.
func waitsForArithmetic(c op.Call) bool { return c.Cost().Matrix && c.In[0].Shape.Rows() > 16 }

// confirm decides between the cached time of a matmul and that of now, and whether the other cached ones stay.
func (t *callTimes) confirm(arithmetic bool, cached, now machine.CallTime) machine.CallTime {
	if t.confirmed[arithmetic]++; float64(now.Device) < haunted*float64(cached.Device) {
		t.cached, t.changed = nil, true
		return now
	}
	return cached
}

// long says whether a CPU measures a call no more.
func (t *callTimes) long(c op.Call) bool {
	cost := c.Cost()
	return t.spent[waitsForArithmetic(c)] > cpuSpent || cost.Flops > cpuFlops || cost.Bytes > cpuBytes
}

// cpuWhole says whether a call touches more than the inner caches of a CPU hold, so that nothing of it is there when
// a run comes to it: what made its operands has ended long ago, or wrote past them.
func cpuWhole(c op.Call) bool { return c.Traffic() > cpuInner }

// measure runs a call, with no more than room bytes of the device, and gives the memory back.
func (w within) measure(c op.Call) (took machine.CallTime, err error) {
	t := w.callTimes
	if err := w.prepared(); err != nil {
		return took, err
	}
	span := callSpan
	if t.host {
		began := stopwatch.Now()
		defer func() { t.spent[waitsForArithmetic(c)] += stopwatch.Since(began) }()
		t.bench.cold, t.bench.whole, t.bench.typical = cpuCold, cpuWhole(c), true
		if w.cached {
			t.bench.cold = min(cpuCold, lastCache()/4)
		}
		t.bench.long, t.bench.rest, t.bench.patience, span = cpuLong, 0, cpuPatience, cpuSpan
	}
	if err := t.measureMixture(); err != nil {
		return took, err
	}
	took, err = t.bench.callTime(c, span)
	if freed := t.bench.free(); err == nil {
		err = freed
	}
	return took, err
}

// prepared opens what measuring takes, in so many bytes of the device.
func (w within) prepared() (err error) {
	t := w.callTimes
	if t.bench == nil {
		if t.bench, err = newBench(t.dev); err != nil {
			t.bench = nil
			return err
		}
		t.bench.rest = callRest
		if _, can := t.dev.(device.GraphCapturer); can {
			t.bench.cold = coldBytes
		}
	}
	t.bench.room = w.bytes
	return nil
}

// measureMixture measures what calls take longer among others, once for a device whose kernels
// can be captured: those of others take long enough for that not to matter.
func (t *callTimes) measureMixture() error {
	if _, can := t.dev.(device.GraphCapturer); !can || t.mixture != nil {
		return nil
	}
	cold := t.bench.cold
	t.bench.cold = 0 // their memory is shared
	extra, err := t.bench.mixture()
	t.bench.cold = cold
	if err != nil { // without memory for it, say: calls count as they are measured by themselves
		extra = machine.CallTime{}
	}
	t.mixture = &extra
	return t.bench.free()
}

// opened says that the device was opened again.
func (t *callTimes) opened(dev device.Device) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dev = dev
}

// close gives back what measuring took of the device, and stores what was measured.
func (t *callTimes) close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bench != nil {
		err = t.bench.close()
	}
	t.bench, t.dev = nil, nil
	if t.changed && !t.forgotten && t.o.Cache != "" {
		all := map[string]machine.CallTime{}
		for _, from := range []map[string]machine.CallTime{t.cached, t.known} {
			for key, took := range from {
				all[key] = took
			}
		}
		if t.mixture != nil {
			all[mixtureKey] = *t.mixture
		}
		// What cannot be stored is measured again next time.
		_ = t.o.store(entry{Version: cacheVersion, Key: t.key, At: today(), Calls: all})
		t.changed = false
	}
	return err
}

// forget removes what is stored, and stores nothing of this process.
func (t *callTimes) forget() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgotten = true
	return t.o.forget(t.key)
}
