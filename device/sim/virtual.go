// Package sim holds devices that are not quite real.
//
// Virtual has no memory and does no arithmetic: it takes the time an op or copy
// would take at given rates, so a plan carried out on it gives its forecast, for
// any model on any machine.
//
// Capped stands around a real device and limits its memory and its link, and
// makes operations fail on demand.
package sim

import (
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// Rates of a device. Zero rates count as infinitely fast.
type Rates struct {
	Matrix    units.Flops // products and attention
	MatrixF32 units.Flops // those of f32, where Matrix is of a narrower type; 0: the same
	// Lasting is what is left of Matrix in work without pauses; 0: all of it.
	Sustained units.Flops
	Vector    units.Flops // everything else
	Memory    units.Rate  // of the device's own memory, read plus write
	In        units.Rate  // host to device
	Out       units.Rate  // device to host
	Peer      units.Rate  // device to device; 0: as from the host
	// Duplex is what in and out carry at once; 0: each its full rate.
	Bidirectional machine.Bidirectional
	// Traffic is what the host's memory carries while its processor updates and copies go
	// both ways; 0: all they ask for.
	HostUnderLoad units.Rate
	Launch        time.Duration // what handing a kernel over takes
	// Kernel is the least a kernel takes that was handed over in time; 0: as long as Launch.
	Kernel  time.Duration
	Latency time.Duration // per copy
	// Tables are the rates of calls by their size, where they were measured.
	Tables machine.ByVariant
}

// Virtual is a device in virtual time. Its methods must be called from one
// goroutine: the order of calls is the order of events.
type Virtual struct {
	name        string
	limit       int64
	align       int64
	rates       Rates
	allocated   int64
	peak        int64
	link        link
	throttle    throttle
	hostLink    *link         // of a card, that the device shares memory with as the host's processor; nil of all others
	waitedUntil time.Duration // until when somebody has waited for a queue
	queues      []*virtualQueue
	// NoScratch: kernels ask for no scratch memory, because the plan has reserved
	// what those of the real device need.
	NoScratch bool
	// OneByOne: kernels are handed over one by one, and wait for that.
	OneByOne bool
	launched time.Duration // when the last one was
}

// NewVirtual makes a device; a limit of 0 is none.
func NewVirtual(name string, limit, align int64, r Rates) *Virtual {
	return &Virtual{name: name, limit: limit, align: align, rates: r, link: newLink(r.Bidirectional), throttle: newThrottle(r)}
}

// Beside makes the device the host's processor, whose kernels share the host's memory with
// the copies of cards that are alike.
func (v *Virtual) ShareHostMemory(cards []*Virtual) {
	if len(cards) == 0 || cards[0].rates.HostUnderLoad == 0 {
		return
	}
	n, r := units.Rate(len(cards)), cards[0].rates
	all := max(r.HostUnderLoad, v.rates.Memory) // whatever noise there was: updates alone are no more than all
	m := hostMemory{rate: float64(all), in: float64(n * r.In), out: float64(n * r.Out), updates: float64(v.rates.Memory)}
	kernels := &channel{}
	for _, c := range cards {
		c.link.share(kernels, m)
	}
	v.hostLink = &cards[0].link
}

// Info describes the device.
func (v *Virtual) Info() device.Info {
	return device.Info{Name: v.name, Limit: v.limit, Alignment: v.align}
}

// Alloc counts memory that does not exist.
func (v *Virtual) Alloc(bytes int64) (device.Memory, error) {
	if v.limit > 0 && v.allocated+bytes > v.limit {
		return nil, &device.OutOfMemoryError{Device: v.name, Asked: bytes, Allocated: v.allocated, Limit: v.limit}
	}
	v.allocated += bytes
	v.peak = max(v.peak, v.allocated)
	return &virtualMemory{v, bytes, true}, nil
}

// HostAlloc gives host memory that does not exist either.
func (v *Virtual) HostAlloc(bytes int64) (device.Memory, error) {
	return &virtualMemory{v, bytes, false}, nil
}

// Peak is the most memory that was allocated at once.
func (v *Virtual) Peak() int64 { return v.peak }

// Queue opens a queue at time zero.
func (v *Virtual) Queue(name string) (device.Queue, error) {
	q := &virtualQueue{v: v, name: name}
	v.queues = append(v.queues, q)
	return q, nil
}

// Event makes an event.
func (v *Virtual) Event() (device.Event, error) { return &virtualEvent{}, nil }

// Kernel knows only how long the call takes.
func (v *Virtual) Kernel(c op.Call) (device.Kernel, error) {
	k := v.rates.kernel(c)
	if !v.NoScratch {
		k.workspace = workspace(c)
	}
	return k, nil
}

// Join makes one kernel that takes as long as several: virtual kernels touch nothing.
func (v *Virtual) Join(list []device.Kernel) device.Kernel {
	all := &virtualKernel{}
	for _, k := range list {
		vk := k.(*virtualKernel)
		all.took += vk.took
		all.launches += vk.launches
		all.matmuls += vk.matmuls
		all.energy += vk.energy
		all.workspace = max(all.workspace, vk.workspace)
	}
	return all
}

// Close forgets the device.
func (v *Virtual) Close() error {
	if v.allocated != 0 {
		return fmt.Errorf("%s: %d bytes: %w", v.name, v.allocated, device.ErrLeak)
	}
	return nil
}

// Busy is how long each queue worked, by name.
func (v *Virtual) Busy() map[string]time.Duration {
	busy := map[string]time.Duration{}
	for _, q := range v.queues {
		busy[q.name] += q.busy
	}
	return busy
}

// Waited is until when somebody has waited for queues or events of the device.
func (v *Virtual) WaitedUntil() time.Duration { return v.waitedUntil }

// Resume lets queues begin what they are given from now on no sooner than at a time: when
// it is given.
func (v *Virtual) Resume(at time.Duration) {
	for _, q := range v.queues {
		q.now = max(q.now, at)
	}
	v.launched = max(v.launched, at)
}

// full: the operands are f32, though products are mostly of a narrower type.
func (r Rates) isF32(c op.Call) bool {
	return r.MatrixF32 > 0 && len(c.In) > 0 && c.In[0].DType == dtype.F32
}

// Time a call takes: what its table says, or the longer of its arithmetic and its
// memory traffic. Products thinner than any in their table are bound by that traffic too.
func (r Rates) Time(c op.Call) time.Duration {
	cost := c.Cost()
	if cost.Matrix && r.isF32(c) {
		r.Matrix, r.Tables = r.MatrixF32, nil // tables are of the narrower type
	}
	if table, measured := r.Tables.Of(c); measured {
		took := cost.Amount() / table.At(c.Sizes())
		if cost.Matrix && r.Memory > 0 {
			took = max(took, float64(cost.Bytes)/float64(r.Memory))
		}
		return max(r.shortest(), time.Duration(took*float64(time.Second)))
	}
	flops := r.Vector
	if cost.Matrix {
		flops = r.Matrix
	}
	var t float64
	if flops > 0 {
		t = cost.Flops / float64(flops)
	}
	if r.Memory > 0 {
		t = max(t, float64(cost.Bytes)/float64(r.Memory))
	}
	return r.shortest() + time.Duration(t*float64(time.Second))
}

// least is what the smallest kernel takes.
func (r Rates) shortest() time.Duration {
	if r.Kernel > 0 {
		return r.Kernel
	}
	return r.Launch
}

// lossRows is how many rows of logits a fused loss is assumed to hold at once.
const lossRows = 1024

// workspace is what a good kernel for the call needs as scratch memory.
func workspace(c op.Call) int64 {
	switch c.Kind {
	case op.LinearCrossEntropy, op.LinearCrossEntropyGrad:
		return min(c.In[0].Shape.Rows(), lossRows) * c.In[1].Shape[0] * 4
	case op.AttentionGrad:
		return c.In[4].Bytes() // the rows' dot products of o and do
	}
	return 0
}

type virtualMemory struct {
	v        *Virtual
	size     int64
	onDevice bool
}

func (m *virtualMemory) Size() int64  { return m.size }
func (m *virtualMemory) Host() []byte { return nil }
func (m *virtualMemory) Free() error {
	if m.onDevice {
		m.v.allocated -= m.size
		m.onDevice = false
	}
	return nil
}

type virtualKernel struct {
	took      time.Duration // at full speed
	matmuls   time.Duration // of that, what slows down with the clock
	energy    float64       // seconds of the power that clock counts in
	workspace int64
	launches  int
}

// kernel of a call, without its scratch memory.
func (r Rates) kernel(c op.Call) *virtualKernel {
	k := &virtualKernel{took: r.Time(c), launches: 1}
	if cost := c.Cost(); cost.Matrix && !r.isF32(c) && r.Matrix > 0 {
		k.matmuls, k.energy = k.took, cost.Flops/float64(r.Matrix)
	} else {
		k.energy = otherPower * k.took.Seconds()
	}
	return k
}

// power is the kernel's, on average.
func (k *virtualKernel) power() float64 { return k.energy / k.took.Seconds() }

func (k *virtualKernel) Workspace() int64 { return k.workspace }

type virtualEvent struct{ at time.Duration }

func (e *virtualEvent) Time() time.Duration { return e.at }

type virtualQueue struct {
	v    *Virtual
	name string
	now  time.Duration
	busy time.Duration
	last *transfer // nil: nothing that others could delay
}

// Copy takes the link for the time the bytes need.
func (q *virtualQueue) Copy(dst, src device.Buffer) error {
	r, bytes := q.v.rates, units.Bytes(src.Bytes)
	to, from := dst.Memory.(*virtualMemory), src.Memory.(*virtualMemory)
	q.advance(r.Latency)
	switch {
	case to.onDevice && from.onDevice && r.Peer > 0:
		q.advance(r.Peer.Time(bytes))
	case to.onDevice:
		q.v.link.copy(q, inward, r.In.Time(bytes))
	default:
		q.v.link.copy(q, outward, r.Out.Time(bytes))
	}
	return nil
}

func (q *virtualQueue) Launch(k device.Kernel, _ *device.Launch) error {
	vk, ok := k.(*virtualKernel)
	if !ok {
		return fmt.Errorf("%s: a kernel of another device (%T)", q.v.name, k)
	}
	last := q.awaitLaunch(vk.launches)
	took := q.v.throttle.duration(q.now, vk)
	if q.v.hostLink == nil {
		q.advance(took)
	} else {
		q.v.hostLink.carry(q, hostCPU, took)
	}
	q.now = max(q.now, last)
	return nil
}

// hand has the queue wait for the first of some launches to be handed over, and says when
// the last one is. Where kernels take Launch each in any case, nobody waits.
func (q *virtualQueue) awaitLaunch(launches int) (last time.Duration) {
	v := q.v
	if !v.OneByOne || v.rates.Kernel == 0 || launches == 0 {
		return 0
	}
	q.now = max(q.now, v.launched+v.rates.Launch)
	v.launched += time.Duration(launches) * v.rates.Launch
	return v.launched
}

func (q *virtualQueue) advance(d time.Duration) {
	q.now += d
	q.busy += d
}

func (q *virtualQueue) Record(e device.Event) error {
	at := e.(*virtualEvent)
	if at.at = q.now; q.last != nil {
		q.last.done = at
	}
	return nil
}

func (q *virtualQueue) Wait(e device.Event) error {
	q.now = max(q.now, e.(*virtualEvent).at)
	return nil
}

// Sync has whoever waits do so until the queue is empty.
func (q *virtualQueue) Sync() error {
	q.v.waitedUntil = max(q.v.waitedUntil, q.now)
	return nil
}

// SyncTo has whoever waits do so until the event.
func (q *virtualQueue) SyncTo(e device.Event) error {
	q.v.waitedUntil = max(q.v.waitedUntil, e.(*virtualEvent).at)
	return nil
}

func (q *virtualQueue) Close() error { return nil }
