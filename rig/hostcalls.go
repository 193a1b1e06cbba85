package rig

import (
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// hostCalls measures what calls of few rows take on the CPU next to a GPU, matmuls while weights come to the
// GPU from the same host memory, with weights that no cache holds. So blocks of a model larger than the GPU
// are computed. What was measured is stored as the times of a GPU's calls are; a process measures the first
// that it asks for again, and where that takes another time now, all of them.
type hostCalls struct {
	mu   sync.Mutex
	o    Options
	key  string
	gpu  device.Device // nil while it is closed
	rate units.Rate    // of the link alone

	known   map[string]machine.CallTime
	cached  map[string]machine.CallTime // of earlier processes
	checked bool                        // whether they still hold
	changed bool
	bench   *hostBench // nil until something is measured, and after Release
}

const (
	// hostCold is more than the caches of most CPUs hold, and coldCaches how many times the last cache of large
	// ones, which keep a good part of what is twice their size, up to mostCold.
	hostCold, coldCaches, mostCold = 512 << 20, 4, 4 << 30
	// hostSpan is how long launches of a matmul are timed, and otherSpan those of other calls.
	hostSpan, otherSpan = 20 * time.Millisecond, time.Millisecond
	// hostRows is up to how many rows calls are measured.
	hostRows = 64
	// trafficBytes is the size of copies that keep the link busy, and trafficParts how many there are in
	// the host memory that they come from, which no cache holds either.
	trafficBytes, trafficParts = 32 << 20, 32
	// changedBy is how far a time must be from a cached one for those to be forgotten.
	changedBy = 0.15
	// linkKey is that of the time of a copy of trafficBytes while the CPU computes.
	linkKey = "link"
)

// newHostCalls reads what earlier processes have measured next to a GPU.
func newHostCalls(gpu device.Device, m machine.Machine, o Options) *hostCalls {
	h := &hostCalls{o: o, gpu: gpu, key: "next to " + callKey(gpu) + "|" + hostKey(m), known: map[string]machine.CallTime{}}
	if e, err := o.load(h.key); err == nil {
		h.cached = e.Calls
	}
	return h
}

// Time of a call; false of many rows, and of attention.
func (h *hostCalls) Time(c op.Call) (machine.CallTime, bool) { return h.time(c, 2*coldOf(lastCache())) }

// coldOf is how many bytes a CPU with so large a last cache holds next to nothing of when they are read in turns.
func coldOf(cache int64) int64 { return min(max(hostCold, coldCaches*cache), mostCold) }

// Within is the same for whoever may take so many bytes of host memory.
func (h *hostCalls) Within(bytes int64) machine.Calls { return hostCallsWithin{h, bytes} }

type hostCallsWithin struct {
	*hostCalls
	bytes int64
}

func (w hostCallsWithin) Time(c op.Call) (machine.CallTime, bool) { return w.time(c, w.bytes) }

func (h *hostCalls) time(c op.Call, room int64) (took machine.CallTime, ok bool) {
	matmul := c.Kind == op.MatMul && c.Attr.TransB || c.Kind == op.QuantizedMatmul
	switch {
	case len(c.In) == 0 || c.In[0].Shape.Rows() > hostRows || c.Kind.ReadsCache() || c.Cost().Matrix && !matmul:
		return took, false
	case matmul: // what is added takes next to nothing
		var err error
		if c, err = fewerShapes(c); err != nil {
			return took, false
		}
	}
	return h.asked(c, func() (machine.CallTime, error) { return h.measure(c, room) })
}

// asked is the time of a call that was measured before, or is measured now.
func (h *hostCalls) asked(c op.Call, measure func() (machine.CallTime, error)) (took machine.CallTime, ok bool) {
	raw, err := json.Marshal(c)
	if err != nil {
		return took, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := string(raw)
	if took, ok = h.known[key]; ok {
		return took, took.Device > 0
	}
	if took, ok = h.cached[key]; ok && h.checked {
		return took, took.Device > 0
	}
	if h.gpu == nil || h.o.Stop != nil && h.o.Stop() != nil {
		return took, ok
	}
	before := took
	if took, err = measure(); err != nil {
		took = before // zero: it is not asked for again
	}
	if off := float64(took.Device) / float64(max(before.Device, 1)); ok && err == nil && (off > 1+changedBy || off < 1-changedBy) {
		h.cached = nil // of another host, or of a busy minute
	}
	h.known[key], h.checked, h.changed = took, h.checked || ok, true
	return took, took.Device > 0
}

// fewerShapes is a matmul that takes at least as long, of which there are fewer: of 1, 4, 16 or 64 rows, and
// nothing added.
func fewerShapes(c op.Call) (op.Call, error) {
	rows, x := int64(1), c.In[0]
	for rows < x.Shape.Rows() {
		rows *= 4
	}
	x.Shape = []int64{1, rows, x.Shape.Last()}
	a := c.Attr
	a.Bias, a.Plus, a.Accumulate = false, false, false
	return op.Make(c.Kind, a, x, c.In[1])
}

// measure runs a call on the CPU, a matmul while the link is busy, with at most so much host memory.
func (h *hostCalls) measure(c op.Call, room int64) (took machine.CallTime, err error) {
	if err := h.openLink(room); err != nil {
		return took, err
	}
	h.bench.room = room * 3 / 4
	h.bench.cold = min(coldOf(lastCache()), h.bench.room)
	w, err := h.bench.prepare(c)
	if err != nil {
		return took, err
	}
	if !c.Cost().Matrix {
		took.Device, err = w.average(otherSpan)
		return took, err
	}
	stop := h.traffic()
	took.Device, err = w.average(hostSpan)
	carried, stopped := stop()
	if carried > 0 && c.In[0].Shape.Rows() == 1 {
		h.known[linkKey] = machine.CallTime{Device: carried.Time(trafficBytes)}
	}
	return took, errors.Join(err, stopped)
}

// average is what a launch takes on average, of as many as take so long.
func (w *work) average(span time.Duration) (time.Duration, error) {
	launches := launchesIn(span, w.once)
	if _, err := w.row(min(launches, len(w.launches))); err != nil {
		return 0, err
	}
	return w.row(launches)
}

// hostBench is what measuring takes of the computer, until it is released.
type hostBench struct {
	*bench
	cpu      device.Device
	from, to device.Memory // of copies that keep the link busy; nil where there is no memory for them
	queue    device.Queue
}

// open takes the CPU to measure with.
func (h *hostCalls) open() (err error) {
	if h.bench != nil {
		return nil
	}
	m := &hostBench{}
	h.bench = m
	defer func() {
		if err != nil {
			err = errors.Join(err, h.release())
		}
	}()
	if m.cpu, err = device.Open(cpuDriver, device.Options{}); err != nil {
		return err
	}
	if m.bench, err = newBench(m.cpu); err != nil {
		return err
	}
	m.rest = 0
	return nil
}

// openLink takes memory too that copies keep the link busy with: of the host at most a fourth of what there is room for.
func (h *hostCalls) openLink(room int64) (err error) {
	if err := h.open(); err != nil || h.bench.queue != nil {
		return err
	}
	m := h.bench
	defer func() {
		if err != nil {
			err = errors.Join(err, h.release())
		}
	}()
	parts := min(room/4/trafficBytes, trafficParts)
	if parts < 1 {
		return nil
	}
	if m.from, err = h.gpu.HostAlloc(parts * trafficBytes); err != nil {
		return err
	}
	if m.to, err = h.gpu.Alloc(trafficBytes); err != nil {
		return err
	}
	m.queue, err = h.gpu.Queue("in")
	return err
}

// release gives back what measuring took.
func (h *hostCalls) release() (err error) {
	m := h.bench
	if m == nil {
		return nil
	}
	h.bench = nil
	if m.queue != nil {
		err = m.queue.Close()
	}
	for _, held := range []device.Memory{m.to, m.from} {
		if held != nil {
			err = errors.Join(err, held.Free())
		}
	}
	if m.bench != nil {
		err = errors.Join(err, m.bench.close())
	}
	if m.cpu != nil {
		err = errors.Join(err, m.cpu.Close())
	}
	return err
}

// held is what measuring has of the GPU and of page-locked host memory, until it is released. Bytes.
func (h *hostCalls) held() (gpu, host int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.bench; m != nil && m.to != nil {
		gpu = m.to.Size()
	}
	if m := h.bench; m != nil && m.from != nil {
		host = m.from.Size()
	}
	return gpu, host
}

// Release implements machine.Releaser.
func (h *hostCalls) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.release()
}

// traffic keeps the link busy until stop is called, which says at what rate it was.
func (h *hostCalls) traffic() (stop func() (units.Rate, error)) {
	m := h.bench
	if m.queue == nil {
		return func() (units.Rate, error) { return 0, nil }
	}
	var from []device.Buffer
	for at := int64(0); at < m.from.Size(); at += trafficBytes {
		from = append(from, device.Buffer{Memory: m.from, Offset: at, Bytes: trafficBytes})
	}
	var link busyLink
	ended := make(chan error)
	began := stopwatch.Now()
	go func() {
		ended <- link.repeat(h.gpu, m.queue, []device.Buffer{{Memory: m.to, Bytes: trafficBytes}}, from)
	}()
	return func() (units.Rate, error) {
		carried := units.Rate(float64(link.bytes.Load()) / stopwatch.Since(began).Seconds())
		link.stop.Store(true)
		return carried, <-ended
	}
}

// LinkShare is what the link carries of its rate while the CPU computes; 1 where nobody knows.
func (h *hostCalls) LinkShare() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	busy, ok := h.known[linkKey]
	if !ok {
		busy = h.cached[linkKey]
	}
	if busy.Device <= 0 || h.rate <= 0 {
		return 1
	}
	return min(h.rate.Time(trafficBytes).Seconds()/busy.Device.Seconds(), 1)
}

// described tells the rate of the link alone.
func (h *hostCalls) described(rate units.Rate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rate = rate
}

// opened says that the GPU was opened again.
func (h *hostCalls) opened(gpu device.Device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gpu = gpu
}

// close stores what was measured.
func (h *hostCalls) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.release()
	if h.gpu = nil; !h.changed || h.o.Cache == "" {
		return err
	}
	all := maps.Clone(h.known)
	for key, took := range h.cached {
		if _, measured := all[key]; !measured {
			all[key] = took
		}
	}
	maps.DeleteFunc(all, func(_ string, t machine.CallTime) bool { return t.Device <= 0 })
	if len(all) > 0 { // what cannot be stored is measured again next time
		_ = h.o.store(entry{Version: cacheVersion, Key: h.key, At: today(), Calls: all})
	}
	h.changed = false
	return err
}
