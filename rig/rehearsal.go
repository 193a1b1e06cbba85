package rig

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
)

const (
	// mostPasses is how many passes at most have weights and saved activations of their own, as blocks of a model have.
	mostPasses = 16
	// rehearsalSpan is how long the passes of a rehearsal take together, and rehearsalLaunches how many launches
	// they are at most.
	rehearsalSpan, rehearsalLaunches = 3 * time.Millisecond, 512
	// rehearsals is how often that is timed; the shortest time counts.
	rehearsals = 3
	// passKey begins the keys of times of passes.
	passKey = "pass "
)

// Rehearse implements machine.Rehearser. A CPU rehearses short passes: of long calls it is enough to know each by itself.
func (w within) Rehearse(p machine.Pass) (time.Duration, bool) {
	t := w.callTimes
	t.mu.Lock()
	defer t.mu.Unlock()
	raw, err := json.Marshal(p)
	if err != nil || len(p.Calls) == 0 {
		return 0, false
	}
	key := fmt.Sprintf("%s%x", passKey, sha256.Sum256(raw))
	if t.host {
		if w.reads > 0 { // how much of the weights its caches hold
			key += fmt.Sprintf(" of %d bytes", w.reads)
		}
		if !w.short(p) {
			return 0, false
		}
	}
	return w.once(key, func() (time.Duration, error) { return t.bench.rehearse(p) })
}

// cpuShort is what the calls of a pass take at most that a CPU rehearses.
const cpuShort = 20 * time.Millisecond

// short says whether a pass is one that a CPU rehearses, for which there is time left.
func (w within) short(p machine.Pass) bool {
	var sum time.Duration
	for _, c := range p.Calls {
		took, known := w.repeated(c.Call)
		if sum += took.Device; !known || sum > cpuShort {
			return false
		}
	}
	return w.spent[false] <= cpuSpent
}

// Replay implements machine.Rehearser: the line through graphs of few and of many kernels, and what updates take
// more, whose numbers change.
func (w within) Replay(launches, renewed int) (time.Duration, bool) {
	t := w.callTimes
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, captures := t.dev.(device.GraphCapturer); !captures {
		return 0, false
	}
	var took [3]time.Duration
	for i, g := range []struct {
		kind     op.Kind
		launches int
	}{{op.Scale, fewReplayed}, {op.Scale, manyReplayed}, {optim.Adam, renewedReplayed}} {
		call, err := plainCall(g.kind)
		if err != nil {
			return 0, false
		}
		known := false
		if took[i], known = w.once(fmt.Sprintf("graph of %d %s", g.launches, g.kind), func() (time.Duration, error) { return t.bench.replay(call, g.launches) }); !known {
			return 0, false
		}
	}
	each := max(float64(took[1]-took[0])/(manyReplayed-fewReplayed), 0)
	begin := max(float64(took[0])-fewReplayed*each, 0)
	renewal := max((float64(took[2])-begin)/renewedReplayed-each, 0)
	return time.Duration(begin + float64(launches)*each + float64(renewed)*renewal), true
}

// plainCall is a small call of a kind.
func plainCall(kind op.Kind) (op.Call, error) {
	if kind == optim.Adam {
		return plain[kind](dtype.F32, 1, smallCall)
	}
	return op.Make(kind, op.Attr{Scale: 0.5}, of(dtype.F32, smallCall))
}

const smallCall = 256

// once measures something, unless this process or an earlier one has.
func (w within) once(key string, measure func() (time.Duration, error)) (time.Duration, bool) {
	t := w.callTimes
	if key = w.prefix() + key; t.unknown[key] {
		return 0, false
	}
	took, known := t.known[key]
	if !known {
		if took, known = t.cached[key]; known {
			t.known[key] = took
		}
	}
	if known {
		return took.Device, true
	}
	if t.dev == nil {
		return 0, false
	}
	err := w.prepared()
	if err == nil {
		if t.host {
			began := stopwatch.Now()
			defer func() { t.spent[false] += stopwatch.Since(began) }()
			t.bench.cold, t.bench.patience = min(cpuCold, cmp.Or(w.reads, cpuCold)), cpuPatience
		}
		took.Device, err = measure()
		err = errors.Join(err, t.bench.free())
	}
	if err != nil || took.Device <= 0 { // without memory for it, say: the sum of its calls counts
		t.unknown[key] = true
		return 0, false
	}
	t.known[key], t.changed = took, true
	return took.Device, true
}

// rehearsal is a pass that is ready to be launched.
type rehearsal struct {
	*bench
	kernels []device.Kernel
	rounds  [][]*device.Launch // by pass: those of each of its calls
}

// rehearse is what a pass takes among others like it. Each has memory of its own where blocks have, so that weights and saved
// activations come from memory and not from a cache, and all share what is used again.
func (b *bench) rehearse(p machine.Pass) (time.Duration, error) {
	r := &rehearsal{bench: b}
	for _, c := range p.Calls {
		k, err := b.dev.Kernel(c.Call)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(c.Call.Out, func(t op.Type) bool { return t.DType == dtype.I32 }) {
			return 0, fmt.Errorf("%v gives integers, which others are led by", c.Call)
		}
		r.kernels, p.Scratch = append(r.kernels, k), max(p.Scratch, p.Work+k.Workspace())
	}
	if err := r.place(p); err != nil {
		return 0, err
	}
	once, err := r.warm()
	if err != nil {
		return 0, err
	}
	n := max(int(rehearsalSpan/max(once, 1)), len(r.rounds))
	n = max(min(n, rehearsalLaunches/len(p.Calls)), 1)
	if _, captures := r.dev.(device.GraphCapturer); !captures {
		return r.typicalTime(n)
	}
	return r.time(n, once, p.Captured)
}

// place lays out the scratch memory, what is shared, and what each pass has alone, and fills what is read before it is
// written.
func (r *rehearsal) place(p machine.Pass) error {
	align := max(r.dev.Info().Alignment, 1)
	up := func(n int64) int64 { return (n + align - 1) / align * align }
	at, each := make([]int64, len(p.Places)), int64(0)
	size := up(p.Scratch)
	for i, place := range p.Places {
		switch {
		case place.Scratch:
			at[i] = place.Offset
		case place.Shared:
			at[i] = size
			size += up(place.Bytes)
		default:
			at[i] = each
			each += up(place.Bytes)
		}
	}
	passes := int64(1)
	if each > 0 {
		passes = min(r.cold/each+1, mostPasses)
		if r.room > 0 {
			passes = min(passes, (r.room-size)/each)
		}
	}
	if size += passes * each; passes < 1 || r.room > 0 && size > r.room {
		return &device.OutOfMemoryError{Device: r.dev.Info().Name, Asked: size, Limit: r.room}
	}
	err := r.free()
	if err != nil {
		return err
	}
	if err := r.alloc(size); err != nil {
		return err
	}
	filled := make([]bool, len(p.Places)) // of what is shared
	for n := range passes {
		buffers := make([]device.Buffer, len(p.Places))
		for i, place := range p.Places {
			buffers[i] = device.Buffer{Memory: r.memory, Offset: at[i], Bytes: place.Bytes}
			if !place.Scratch && !place.Shared {
				buffers[i].Offset += size - (passes-n)*each
			}
		}
		if err := r.fillPass(p, buffers, filled); err != nil {
			return err
		}
		r.rounds = append(r.rounds, r.launches(p, buffers))
	}
	return r.queue.Sync()
}

// launches are those of a pass.
func (r *rehearsal) launches(p machine.Pass, buffers []device.Buffer) (list []*device.Launch) {
	for i, c := range p.Calls {
		l := &device.Launch{Args: &op.Args{Scalars: typicalArgs}}
		for k, place := range c.Places {
			b := buffers[place]
			b.Bytes = typeOf(c.Call, k).Bytes()
			l.Buffers = append(l.Buffers, b)
		}
		if work := r.kernels[i].Workspace(); work > 0 {
			l.Workspace = device.Buffer{Memory: r.memory, Offset: p.Work, Bytes: work}
		}
		list = append(list, l)
	}
	return list
}

// typeOf is that of an operand or, behind those, of an output.
func typeOf(c op.Call, i int) op.Type {
	if i < len(c.In) {
		return c.In[i]
	}
	return c.Out[i-len(c.In)]
}

// fillPass fills what a pass reads before it writes it. What is shared is filled once.
func (r *rehearsal) fillPass(p machine.Pass, buffers []device.Buffer, filled []bool) error {
	made := make([]bool, len(p.Places))
	for _, c := range p.Calls {
		for k, place := range c.Places {
			if made[place] || p.Places[place].Shared && filled[place] {
				made[place] = true
				continue
			}
			made[place], filled[place] = true, true
			if k >= len(c.Call.In) {
				continue
			}
			if err := r.fillPlace(p, place, buffers[place]); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillPlace fills an operand with the numbers of a constant, or with random ones that all calls take which read it.
func (r *rehearsal) fillPlace(p machine.Pass, place int, to device.Buffer) error {
	if data := p.Places[place].Data; len(data) > 0 {
		m, err := r.dev.HostAlloc(int64(len(data)))
		if err != nil {
			return err
		}
		copy(m.Host(), data)
		to.Bytes = int64(len(data))
		return errors.Join(r.queue.Copy(to, device.Buffer{Memory: m, Bytes: to.Bytes}), r.queue.Sync(), m.Free())
	}
	var of content
	for _, c := range p.Calls {
		for k := range c.Call.In {
			if c.Places[k] != place {
				continue
			}
			now := contentOf(c.Call, k)
			if of.of == dtype.Invalid || now.step.what > 0 || now.positions > 0 || of.positions == 0 && now.ids > 0 && now.ids < of.ids {
				of = now
			}
		}
	}
	from, err := r.noiseOf(of)
	if err != nil {
		return err
	}
	return r.fill(from, to)
}

// issue launches so many passes.
func (r *rehearsal) issue(passes int) error {
	for n := range passes {
		for i, l := range r.rounds[n%len(r.rounds)] {
			if err := r.queue.Launch(r.kernels[i], l); err != nil {
				return err
			}
		}
	}
	return nil
}

// warm runs every pass twice, since code is loaded at first use, and says what one takes about.
func (r *rehearsal) warm() (once time.Duration, err error) {
	for range 2 {
		start := stopwatch.Now()
		if err := errors.Join(r.issue(len(r.rounds)), r.queue.Sync()); err != nil {
			return 0, err
		}
		once = stopwatch.Since(start) / time.Duration(len(r.rounds))
	}
	return once, nil
}

// time is what a pass takes of the device, of so many in a row: replayed from a graph, or launched one by one while
// the device is busy with a graph of the same, so that it never waits for the host.
func (r *rehearsal) time(passes int, once time.Duration, captured bool) (best time.Duration, err error) {
	graph, err := r.dev.(device.GraphCapturer).Capture([]device.Queue{r.queue}, func() error { return r.issue(passes) })
	if err != nil {
		return 0, fmt.Errorf("capturing a pass: %w", err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	replayed, err := r.elapsed(1, graph.Launch, graph.Launch)
	if err != nil {
		return 0, err
	}
	next, ahead := graph.Launch, 1
	if !captured {
		next = func() error { return r.issue(passes) }
		start := stopwatch.Now()
		if err := errors.Join(next(), r.queue.Sync()); err != nil {
			return 0, err
		}
		ahead += min(int(2*stopwatch.Since(start)/max(replayed, 1)), mostAhead)
	}
	for i := range rehearsals {
		time.Sleep(min(2*time.Duration(passes)*once, r.rest)) // a GPU would lower its clock
		took, err := r.elapsed(ahead, graph.Launch, next)
		if err != nil {
			return 0, err
		}
		if took /= time.Duration(passes); i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// typicalTime is what a pass takes of a device that captures no graphs, of so many in a row: the middle of several rows in which
// nobody else took the cores.
func (r *rehearsal) typicalTime(passes int) (time.Duration, error) {
	var rows []time.Duration
	for tries, disturbed := 0, 0; tries < typicalTries+disturbed; tries++ {
		before, start := preempted(), stopwatch.Now()
		if err := errors.Join(r.issue(passes), r.queue.Sync()); err != nil {
			return 0, err
		}
		took := stopwatch.Since(start) / time.Duration(passes)
		if preempted() != before && disturbed < r.patience {
			disturbed++
		} else {
			rows = append(rows, took)
		}
	}
	return middle(rows), nil
}

// mostAhead is how many graphs at most keep a device busy while others are launched behind them.
const mostAhead = 16

// elapsed is what the device takes for work that it is given while it does other work, so many times.
func (b *bench) elapsed(times int, before, work func() error) (time.Duration, error) {
	for i := range b.marks {
		if b.marks[i] == nil {
			var err error
			if b.marks[i], err = b.dev.Event(); err != nil {
				return 0, err
			}
		}
	}
	for range times {
		if err := before(); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(b.queue.Record(b.marks[0]), work(), b.queue.Record(b.marks[1]), b.queue.Sync()); err != nil {
		return 0, err
	}
	if exact, can := b.marks[1].(device.Elapser); can {
		return exact.Since(b.marks[0]), nil
	}
	return b.marks[1].Time() - b.marks[0].Time(), nil
}

// Graphs that are launched to see what that takes have so many kernels. Before each the host rests for as long as a short
// step takes.
const (
	fewReplayed, manyReplayed, renewedReplayed = 16, 512, 256
	replayRest                                 = 5 * time.Millisecond
	replays                                    = 5
)

// replay is how much longer the host waits for a graph of so many small kernels than the device takes for it.
func (b *bench) replay(call op.Call, launches int) (longer time.Duration, err error) {
	w, err := b.prepare(call)
	if err != nil {
		return 0, err
	}
	graph, err := b.dev.(device.GraphCapturer).Capture([]device.Queue{b.queue}, func() error { return w.issue(launches) })
	if err != nil {
		return 0, fmt.Errorf("capturing %v: %w", call, err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	alone, err := b.elapsed(1, graph.Launch, graph.Launch)
	if err != nil {
		return 0, err
	}
	var list []time.Duration
	for range replays {
		time.Sleep(replayRest)
		start := stopwatch.Now()
		if err := errors.Join(graph.Launch(), b.queue.Sync()); err != nil {
			return 0, err
		}
		list = append(list, stopwatch.Since(start)-alone)
	}
	return max(middle(list), 1), nil
}
