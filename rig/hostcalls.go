package rig

import (
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"spillway/device"
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
}

const (
	// hostCold is more than the caches of CPUs hold.
	hostCold = 512 << 20
	// hostSpan is how long launches of a matmul are timed, and otherSpan those of other calls.
	hostSpan, otherSpan = 30 * time.Millisecond, 2 * time.Millisecond
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
func newHostCalls(gpu device.Device, d machine.Device, m machine.Machine, o Options) *hostCalls {
	h := &hostCalls{o: o, gpu: gpu, rate: d.Link.In, key: "next to " + callKey(gpu) + "|" + hostKey(m), known: map[string]machine.CallTime{}}
	if e, err := o.load(h.key); err == nil {
		h.cached = e.Calls
	}
	return h
}

// Time of a call; false of many rows, and of attention.
func (h *hostCalls) Time(c op.Call) (machine.CallTime, bool) { return h.time(c, hostCold) }

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
		c.Attr.Bias, c.Attr.Plus, c.Attr.Accumulate, c.In = false, false, false, c.In[:2:2]
	}
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
	if h.gpu == nil {
		return took, ok
	}
	before := took
	if took, err = h.measure(c, room); err != nil {
		took = before // zero: it is not asked for again
	}
	if off := float64(took.Device) / float64(max(before.Device, 1)); ok && err == nil && (off > 1+changedBy || off < 1-changedBy) {
		h.cached = nil // of another host, or of a busy minute
	}
	h.known[key], h.checked, h.changed = took, h.checked || ok, true
	return took, took.Device > 0
}

// measure runs a call on the CPU while the link is busy, with at most so much host memory.
func (h *hostCalls) measure(c op.Call, room int64) (took machine.CallTime, err error) {
	cpu, err := device.Open(cpuDriver, device.Options{})
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	b, err := newBench(cpu)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.rest, b.room = 0, room*3/4
	b.cold = min(hostCold, b.room)
	w, err := b.prepare(c)
	if err != nil {
		return took, err
	}
	if !c.Cost().Matrix {
		took.Device, err = w.average(otherSpan)
		return took, err
	}
	stop, err := h.traffic(room / 4)
	if err != nil {
		return took, err
	}
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

// traffic keeps the link busy until stop is called, which says at what rate it was.
func (h *hostCalls) traffic(room int64) (stop func() (units.Rate, error), err error) {
	parts := min(room/trafficBytes, trafficParts)
	if parts < 1 { // no memory for it
		return func() (units.Rate, error) { return 0, nil }, nil
	}
	var held []interface{ Free() error }
	var q device.Queue
	free := func() (err error) {
		if q != nil {
			err = q.Close()
		}
		for _, m := range held {
			err = errors.Join(err, m.Free())
		}
		return err
	}
	host, err := h.gpu.HostAlloc(parts * trafficBytes)
	if err != nil {
		return nil, err
	}
	held = append(held, host)
	to, err := h.gpu.Alloc(trafficBytes)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	held = append(held, to)
	if q, err = h.gpu.Queue("in"); err != nil {
		return nil, errors.Join(err, free())
	}
	var from []device.Buffer
	for n := range parts {
		from = append(from, device.Buffer{Memory: host, Offset: n * trafficBytes, Bytes: trafficBytes})
	}
	var link busyLink
	ended := make(chan error)
	began := time.Now()
	go func() {
		ended <- link.repeat(h.gpu, q, []device.Buffer{{Memory: to, Bytes: trafficBytes}}, from)
	}()
	return func() (units.Rate, error) {
		carried := units.Rate(float64(link.bytes.Load()) / time.Since(began).Seconds())
		link.stop.Store(true)
		return carried, errors.Join(<-ended, free())
	}, nil
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

// opened says that the GPU was opened again.
func (h *hostCalls) opened(gpu device.Device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gpu = gpu
}

// close stores what was measured.
func (h *hostCalls) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gpu = nil; !h.changed || h.o.Cache == "" {
		return
	}
	all := maps.Clone(h.known)
	for key, took := range h.cached {
		if _, measured := all[key]; !measured {
			all[key] = took
		}
	}
	maps.DeleteFunc(all, func(_ string, t machine.CallTime) bool { return t.Device <= 0 })
	if len(all) > 0 { // what cannot be stored is measured again next time
		_ = h.o.store(entry{Version: cacheVersion, Key: h.key, At: time.Now().UTC().Truncate(time.Second), Calls: all})
	}
	h.changed = false
}
