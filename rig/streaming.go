package rig

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/op"
	"spillway/units"
)

// Streaming is what the memory of a CPU carries while weights stream from host memory to a limited device: one core copies, the
// others run kernels that read. Of copies it is the bytes that are copied, which are read and written.
type Streaming struct {
	Copy     units.Rate `json:"copy_bytes_per_second"` // each alone
	Read     units.Rate `json:"read_bytes_per_second"`
	CopyWith units.Rate `json:"copy_while_reading_bytes_per_second"` // both at once
	ReadWith units.Rate `json:"read_while_copying_bytes_per_second"`
}

// Seconds is what a step takes that copies some bytes and whose kernels read others, where both go on at once until one of them is
// done.
func (s Streaming) Seconds(copied, read int64) float64 {
	c, r := float64(copied), float64(read)
	both := min(c/float64(s.CopyWith), r/float64(s.ReadWith))
	return both + (c-both*float64(s.CopyWith))/float64(s.Copy) + (r-both*float64(s.ReadWith))/float64(s.Read)
}

// Mean is the mean of two measurements.
func (s Streaming) Mean(t Streaming) Streaming {
	return Streaming{Copy: (s.Copy + t.Copy) / 2, Read: (s.Read + t.Read) / 2, CopyWith: (s.CopyWith + t.CopyWith) / 2, ReadWith: (s.ReadWith + t.ReadWith) / 2}
}

// Sizes of the measurement: pieces that are copied or read at once, from memory that no cache holds, and for how long.
const (
	streamingPiece = 16 << 20
	streamingSpan  = 60 * time.Millisecond
	streamingTries = 3
)

// MeasureStreaming measures a device whose memory is the host's. It takes half a second.
func MeasureStreaming(dev device.Device) (s Streaming, err error) {
	if !dev.Info().OnHost {
		return s, fmt.Errorf("%s has memory of its own; how it streams is measured with its link", dev.Info().Name)
	}
	m, err := newStreaming(dev)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return s, err
	}
	var tries [4][]units.Rate
	for range streamingTries {
		for i, run := range []struct{ copies, reads bool }{{copies: true}, {reads: true}, {true, true}} {
			copied, read, err := m.rates(run.copies, run.reads)
			if err != nil {
				return s, err
			}
			for j, rate := range []units.Rate{copied, read} {
				if rate > 0 {
					tries[i/2*2+j] = append(tries[i/2*2+j], rate)
				}
			}
		}
	}
	for i, to := range []*units.Rate{&s.Copy, &s.Read, &s.CopyWith, &s.ReadWith} {
		slices.Sort(tries[i])
		*to = tries[i][streamingTries/2]
	}
	return s, nil
}

// streaming has memory to copy and to read, and a queue for each.
type streaming struct {
	memory        device.Memory // what is copied, where to, what is read, and the sum
	copies, reads device.Queue
	kernel        device.Kernel
	launch        device.Launch
	part          int64 // bytes of each
}

func newStreaming(dev device.Device) (m *streaming, err error) {
	m = &streaming{part: max(4*lastCache(), streamingPiece) / streamingPiece * streamingPiece}
	call, err := op.Make(op.SumSquares, op.Attr{}, op.Type{DType: dtype.F32, Shape: []int64{streamingPiece / 4}})
	if err != nil {
		return m, err
	}
	if m.kernel, err = dev.Kernel(call); err != nil {
		return m, err
	}
	const aligned = 4096
	sum, work := call.Out[0].Bytes(), m.kernel.Workspace()
	if m.memory, err = dev.HostAlloc(3*m.part + aligned + sum + work); err != nil {
		return m, err
	}
	clear(m.memory.Host()) // the system provides the pages
	m.launch = device.Launch{Args: &op.Args{}, Buffers: []device.Buffer{{}, {Memory: m.memory, Offset: 3 * m.part, Bytes: sum}}}
	if work > 0 {
		m.launch.Workspace = device.Buffer{Memory: m.memory, Offset: 3*m.part + aligned, Bytes: work}
	}
	if m.copies, err = dev.Queue("in"); err != nil {
		return m, err
	}
	m.reads, err = dev.Queue("compute")
	return m, err
}

func (m *streaming) close() error {
	var errs []error
	for _, q := range []device.Queue{m.copies, m.reads} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	if m.memory != nil {
		errs = append(errs, m.memory.Free())
	}
	return errors.Join(errs...)
}

// rates of one or both for a while, 0 of what does not run.
func (m *streaming) rates(copies, reads bool) (copied, read units.Rate, err error) {
	var both sync.WaitGroup
	var failed [2]error
	start := stopwatch.Now()
	repeat := func(to *units.Rate, failed *error, piece func(at int64) error) {
		both.Go(func() {
			var bytes int64
			for *failed == nil && (bytes == 0 || stopwatch.Since(start) < streamingSpan) { // once also where it began late, on a busy computer
				*failed = piece(bytes % m.part)
				bytes += streamingPiece
			}
			*to = units.Rate(float64(bytes) / stopwatch.Since(start).Seconds())
		})
	}
	at := func(part int, at int64) device.Buffer {
		return device.Buffer{Memory: m.memory, Offset: int64(part)*m.part + at, Bytes: streamingPiece}
	}
	if copies {
		repeat(&copied, &failed[0], func(n int64) error { return errors.Join(m.copies.Copy(at(1, n), at(0, n)), m.copies.Sync()) })
	}
	if reads {
		repeat(&read, &failed[1], func(n int64) error {
			m.launch.Buffers[0] = at(2, n)
			return errors.Join(m.reads.Launch(m.kernel, &m.launch), m.reads.Sync())
		})
	}
	both.Wait()
	return copied, read, errors.Join(failed[:]...)
}
