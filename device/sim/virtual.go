// Package sim holds devices that are not quite real.
//
// Virtual has no memory and does no arithmetic: an op or a copy takes the time it would take
// at given rates, in virtual time. A plan carried out on it gives its forecast, for any model
// on any machine.
//
// Capped wraps a real device: it limits and counts its memory, and makes operations fail on
// demand.
package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// Virtual is a device in virtual time. Its methods must be called from one goroutine: the
// order of calls is the order of events.
type Virtual struct {
	timing      *Timing
	limit       int64
	align       int64
	allocated   int64
	peak        int64
	link        link
	throttle    throttle
	hostLink    *link         // of a GPU that this device, the CPU, shares host memory with, or of a CPU its own; nil elsewhere
	waitedUntil time.Duration // the latest time that a queue or event was waited for
	queues      []*virtualQueue
	// Peer is the rate of copies from devices that are alike; 0: as from the host.
	Peer units.Rate
	// NoScratch says that kernels ask for no scratch memory, because the plan has reserved
	// what those of the real device need.
	NoScratch bool
	// Passes are the times of programs that were run on the device, by what they call (PassKey).
	Passes map[string]time.Duration
	// OneByOne says that kernels are launched one by one, not replayed from a captured
	// graph, so that they wait for their launch.
	OneByOne bool
	// launcher is the thread that gives kernels and copies to the queues.
	launcher *launcher
}

// NewVirtual makes a device that takes the time the described one would, computing in t; a
// limit of 0 is none. Rates of zero count as infinitely fast.
func NewVirtual(d machine.Device, t dtype.Type, limit, align int64) *Virtual {
	timing := NewTiming(d, t)
	v := &Virtual{timing: timing, limit: limit, align: align, link: newLink(d.Link.Bidirectional), throttle: newThrottle(timing), launcher: &launcher{}}
	if d.Link.Cores > 0 {
		v.link.takeCores(&channel{}, d.Link.Cores, hostMemory{rate: float64(d.Link.HostBandwidth), in: float64(d.Link.In), out: float64(d.Link.Out), updates: float64(d.Bandwidth)})
		v.hostLink = &v.link
	}
	return v
}

// ShareLauncher has one thread give kernels and copies to this device and to others, as an
// executor does.
func (v *Virtual) ShareLauncher(others []*Virtual) {
	for _, o := range others {
		o.launcher = v.launcher
	}
}

// ShareHostMemory makes the device the CPU, whose kernels share the host's memory with the
// copies of GPUs that are alike.
func (v *Virtual) ShareHostMemory(gpus []*Virtual) {
	if len(gpus) == 0 || gpus[0].timing.Link.HostBandwidth == 0 {
		return
	}
	n, link, updates := units.Rate(len(gpus)), gpus[0].timing.Link, v.timing.Bandwidth
	m := hostMemory{rate: float64(link.HostBandwidth), in: float64(n * link.In), out: float64(n * link.Out), updates: float64(updates)}
	kernels := &channel{}
	for _, g := range gpus {
		g.link.share(kernels, m)
	}
	v.hostLink = &gpus[0].link
}

// ShareLink makes the device the CPU, whose kernels take what they do while copies go to GPUs; meanwhile the
// copies have a share of their rate.
func (v *Virtual) ShareLink(gpus []*Virtual, share float64) {
	if len(gpus) == 0 || share <= 0 {
		return
	}
	kernels := &channel{}
	for _, g := range gpus {
		g.link.slowed(kernels, share)
	}
	v.hostLink = &gpus[0].link
}

// Info describes the device.
func (v *Virtual) Info() device.Info {
	return device.Info{Name: v.timing.Name, Limit: v.limit, Alignment: v.align}
}

// Alloc counts memory that does not exist.
func (v *Virtual) Alloc(bytes int64) (device.Memory, error) {
	if v.limit > 0 && v.allocated+bytes > v.limit {
		return nil, &device.OutOfMemoryError{Device: v.timing.Name, Asked: bytes, Allocated: v.allocated, Limit: v.limit}
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
func (v *Virtual) Event() (device.Event, error) { return &virtualEvent{v: v}, nil }

// Kernel knows only how long the call takes.
func (v *Virtual) Kernel(c op.Call) (device.Kernel, error) {
	x := v.timing
	t := x.call(c)
	k := &virtualKernel{call: c, took: t.Device, launch: t.Launch, launched: t.Launch + t.Device}
	if cost := c.Cost(); cost.Matrix && !x.isF32(c) && x.matmul > 0 {
		k.matmuls, k.energy = k.took, cost.Flops/float64(x.matmul)
	} else {
		k.energy = otherPower * k.took.Seconds()
	}
	if !v.NoScratch {
		k.workspace = c.Workspace()
	}
	return k, nil
}

// Join makes one kernel that takes as long as several: virtual kernels touch nothing.
func (v *Virtual) Join(list []device.Kernel) device.Kernel {
	all := &virtualKernel{}
	for _, k := range list {
		vk := k.(*virtualKernel)
		// It ends when the last has, begun when all before have ended, or when it is launched.
		all.launched = max(all.launched+vk.took, all.launch+vk.launched)
		all.took += vk.took
		all.launch += vk.launch
		all.matmuls += vk.matmuls
		all.energy += vk.energy
		all.workspace = max(all.workspace, vk.workspace)
	}
	if len(v.Passes) > 0 {
		calls := make([]op.Call, len(list))
		for i, k := range list {
			calls[i] = k.(*virtualKernel).call
		}
		all.takes(v.Passes[PassKey(calls)])
	}
	return all
}

// takes has a kernel of several take what they did one after the other; 0 is not known. What is far from the sum of its calls
// was disturbed.
func (k *virtualKernel) takes(d time.Duration) {
	if d < k.took/mostApart || d > mostApart*k.took {
		return
	}
	k.launched = max(k.launched+d-k.took, k.launch)
	k.took, k.matmuls = d, min(k.matmuls, d)
}

// mostApart is how many times the sum of its calls a program takes at most, and the other way round.
const mostApart = 4

// PassKey names what a program calls, one call after the other.
func PassKey(calls []op.Call) string {
	raw, err := json.Marshal(calls)
	if err != nil {
		return ""
	}
	return string(raw)
}

// Close forgets the device.
func (v *Virtual) Close() error {
	if v.allocated != 0 {
		return fmt.Errorf("%s: %d bytes: %w", v.timing.Name, v.allocated, device.ErrLeak)
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

// WaitedUntil is the latest time that somebody waited for: an empty queue, or an event.
func (v *Virtual) WaitedUntil() time.Duration { return v.waitedUntil }

// Resume says at what time the queues are given what comes next: nothing begins before.
func (v *Virtual) Resume(at time.Duration) {
	for _, q := range v.queues {
		q.now = max(q.now, at)
	}
	v.launcher.now = max(v.launcher.now, at)
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
	call      op.Call       // of one that is none of several
	took      time.Duration // at full speed
	matmuls   time.Duration // of that, the part that throttling slows down
	energy    float64       // power by seconds, in the unit of throttle
	workspace int64
	launch    time.Duration // that the host needs to launch it
	// launched is when the kernel has ended on an idle device, from when the host begins to
	// launch it: of several that are joined, as early as each can be.
	launched time.Duration
}

func (k *virtualKernel) Workspace() int64 { return k.workspace }

type virtualEvent struct {
	v  *Virtual
	at time.Duration
}

func (e *virtualEvent) Time() time.Duration { return e.at }

type virtualQueue struct {
	v    *Virtual
	name string
	now  time.Duration
	busy time.Duration
	last *transfer // nil: nothing that others could delay
}

// computeQueue is the name of the queue that kernels run on.
const computeQueue = "compute"

// Copy takes the link for the time the bytes need.
func (q *virtualQueue) Copy(dst, src device.Buffer) error {
	t, bytes := q.v.timing, units.Bytes(src.Bytes)
	to, from := dst.Memory.(*virtualMemory), src.Memory.(*virtualMemory)
	if begun, launches := q.v.launcher.begin(q.v, t.Link.Latency); launches {
		q.now = max(q.now, begun)
	}
	q.advance(t.Link.Latency)
	switch {
	case to.onDevice && from.onDevice && to.v == from.v: // read and written
		q.advance(t.Bandwidth.Time(2 * bytes))
	case to.onDevice && from.onDevice && q.v.Peer > 0:
		q.advance(q.v.Peer.Time(bytes))
	case from.onDevice && from.v == q.v && to.v != q.v: // a disk fills memory of a CPU
		q.v.link.copy(q, outward, t.Link.Out.Time(bytes))
	case to.onDevice && q.name == computeQueue: // a few bytes between kernels, next to what the link carries
		q.advance(t.Link.In.Time(bytes))
	case to.onDevice:
		q.v.link.copy(q, inward, t.Link.In.Time(bytes))
	default:
		q.v.link.copy(q, outward, t.Link.Out.Time(bytes))
	}
	return nil
}

func (q *virtualQueue) Launch(k device.Kernel, _ *device.Launch) error {
	vk, ok := k.(*virtualKernel)
	if !ok {
		return fmt.Errorf("%s: a kernel of another device (%T)", q.v.timing.Name, k)
	}
	if begun, launches := q.v.launcher.begin(q.v, vk.launch); launches {
		q.now = max(q.now, begun+vk.launched-vk.took)
	}
	took := q.v.throttle.duration(q.now, vk)
	if q.v.hostLink == nil {
		q.advance(took)
	} else {
		q.v.hostLink.carry(q, hostCPU, took)
	}
	return nil
}

func (q *virtualQueue) advance(d time.Duration) {
	q.now += d
	q.busy += d
}

func (q *virtualQueue) Record(e device.Event) error {
	q.v.launcher.begin(q.v, q.v.timing.Signal)
	at := e.(*virtualEvent)
	if at.at = q.now; q.last != nil {
		q.last.done = at
	}
	return nil
}

// Wait holds the queue until the event, of which another kind of device hears a little later.
func (q *virtualQueue) Wait(e device.Event) error {
	q.v.launcher.begin(q.v, q.v.timing.Signal)
	event := e.(*virtualEvent)
	at, mine, theirs := event.at, q.v.timing.Handoff, event.v.timing.Handoff
	if at > 0 && (mine == 0) != (theirs == 0) {
		at += (mine + theirs) / 2
	}
	q.now = max(q.now, at)
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
