package executor

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// memory is the arenas of a plan, and the queues of its devices.
type memory struct {
	plan    *plan.Plan
	devices []device.Device
	arenas  []device.Memory
	queues  []device.Queue // by lane index
	staging device.Memory  // through which the host reaches device memory; nil until needed
}

// newMemory allocates all memory the plan will ever use, and opens the queues.
func newMemory(p *plan.Plan, devices []device.Device) (m *memory, err error) {
	m = &memory{plan: p, devices: devices}
	for _, a := range p.Arenas {
		dev := devices[a.Device]
		alloc := dev.HostAlloc
		if a.Tier == plan.OnDevice || a.Tier == plan.OnDisk {
			alloc = dev.Alloc
		}
		arena, err := alloc(a.Bytes)
		if err != nil {
			return m, fmt.Errorf("%s arena of %d bytes: %w", a.Name, a.Bytes, err)
		}
		m.arenas = append(m.arenas, arena)
	}
	for d, dev := range devices {
		for _, l := range plan.Lanes {
			q, err := dev.Queue(string(l))
			if err != nil {
				return m, fmt.Errorf("opening the %s queue of %s: %w", l, p.Devices[d].Name, err)
			}
			m.queues = append(m.queues, q)
		}
	}
	return m, nil
}

func (m *memory) close() error {
	var errs []error
	for _, q := range m.queues {
		errs = append(errs, q.Sync(), q.Close())
	}
	for _, arena := range append(m.arenas, m.staging) {
		if arena != nil {
			errs = append(errs, arena.Free())
		}
	}
	m.queues, m.arenas, m.staging = nil, nil, nil
	return errors.Join(errs...)
}

// queue of a lane of a device.
func (m *memory) queue(dev int, lane plan.Lane) device.Queue {
	s := plan.Instruction{Device: dev, Lane: lane}
	return m.queues[s.LaneIndex()]
}

// buffer of the plan as memory.
func (m *memory) buffer(id int) device.Buffer {
	b := &m.plan.Buffers[id]
	return device.Buffer{Memory: m.arenas[b.Arena], Offset: b.Offset, Bytes: b.Bytes}
}

// region is a part of what an instruction binds to a region.
func (m *memory) region(s *plan.Instruction, at plan.Place, bytes int64) (device.Buffer, error) {
	bind, ok := s.Bound(at.Region, at.Index)
	if !ok {
		return device.Buffer{}, fmt.Errorf("nothing is bound to %s %d", at.Region, at.Index)
	}
	b := m.buffer(bind.Buffer)
	start := bind.Offset + at.Offset
	if start+bytes > b.Bytes {
		return device.Buffer{}, fmt.Errorf("%s %d has %d bytes, %d are used", at.Region, at.Index, b.Bytes, start+bytes)
	}
	b.Offset, b.Bytes = b.Offset+start, bytes
	return b, nil
}

// deviceBuffer is a buffer and the device that reaches it.
type deviceBuffer struct {
	device.Buffer
	dev int
}

// partOf a buffer of the plan.
func (m *memory) partOf(id int, offset, bytes int64) deviceBuffer {
	b := m.buffer(id)
	b.Offset, b.Bytes = b.Offset+offset, bytes
	return deviceBuffer{b, m.plan.Arenas[m.plan.Buffers[id].Arena].Device}
}

// home finds the bytes of the n-th home of a class in host memory; nil for none.
func (m *memory) home(class plan.Class, n int) []byte {
	for id := range m.plan.Buffers {
		b := &m.plan.Buffers[id]
		if b.Home && b.Class == class && m.plan.TierOf(id) != plan.OnDevice {
			if n == 0 {
				return m.buffer(id).Host()
			}
			n--
		}
	}
	return nil
}

// read gives the host the bytes of a buffer: in place where the CPU reaches them, else
// through the staging memory.
func (m *memory) read(b deviceBuffer, use func([]byte)) error {
	if h := b.Host(); h != nil {
		use(h)
		return nil
	}
	stage, err := m.stage(b)
	if err != nil {
		return err
	}
	q := m.queue(b.dev, plan.Compute) // on which nothing carries over
	if err := q.Copy(stage, b.Buffer); err != nil {
		return err
	}
	if err := q.Sync(); err != nil {
		return err
	}
	use(stage.Host())
	return nil
}

// write lets the host fill a buffer, likewise.
func (m *memory) write(b deviceBuffer, fill func([]byte)) error {
	if h := b.Host(); h != nil {
		fill(h)
		return nil
	}
	stage, err := m.stage(b)
	if err != nil {
		return err
	}
	fill(stage.Host())
	q := m.queue(b.dev, plan.In)
	if err := q.Copy(b.Buffer, stage); err != nil {
		return err
	}
	return q.Sync()
}

// stagingBytes bounds the host memory used to reach device memory.
const stagingBytes = 16 << 20

// stage is staging memory as large as a buffer.
func (m *memory) stage(b deviceBuffer) (device.Buffer, error) {
	if m.staging == nil {
		staging, err := m.devices[b.dev].HostAlloc(stagingBytes)
		if err != nil {
			return device.Buffer{}, fmt.Errorf("staging memory: %w", err)
		}
		m.staging = staging
	}
	s := device.Buffer{Memory: m.staging, Bytes: b.Bytes}
	if s.Host() == nil {
		return s, fmt.Errorf("%s has no memory to read or write", m.plan.Devices[b.dev].Name)
	}
	return s, nil
}
