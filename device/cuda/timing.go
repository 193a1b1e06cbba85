package cuda

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"spillway/device/cuda/driver"
)

// timeAlgorithms times the algorithms of a matmul on random operands, in turns, so that the
// GPU's clock treats them alike. It gives no times where memory is too small for the
// operands. The context must be current.
func (d *Device) timeAlgorithms(c candidates) (seconds []float64, err error) {
	t := &timing{candidates: c, d: d, cuda: d.lib.CUDA}
	if fits, err := t.open(); err != nil || !fits {
		return nil, errors.Join(err, t.close())
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.fill(); err != nil {
		return nil, err
	}
	return t.times()
}

// Rounds of timing: the first warms up and loads code; the second says how many matmuls one
// measurement takes, and algorithms far behind the fastest drop out after it.
const (
	warmUpRound, rounds = 1, 4
	minLap, maxLap      = 2, 16 // matmuls per measurement
	lapTime             = 2 * time.Millisecond
	dropOut             = 1.25
)

// times gives the seconds of one matmul by each algorithm.
func (t *timing) times() ([]float64, error) {
	seconds, laps, fastest := make([]float64, len(t.algorithms)), minLap, 0.0
	for round := range rounds {
		for i, way := range t.algorithms {
			if fastest > 0 && seconds[i] > dropOut*fastest {
				continue
			}
			took, err := t.lap(way, laps)
			if err != nil {
				return nil, err
			}
			if round == warmUpRound || round > warmUpRound && took.Seconds() < seconds[i] {
				seconds[i] = took.Seconds()
			}
		}
		if round == warmUpRound {
			fastest = slices.Min(seconds)
			laps = min(max(int(lapTime.Seconds()/max(fastest, 1e-9)), minLap), maxLap)
		}
	}
	return seconds, nil
}

// loadAlgorithm runs an algorithm once on whatever memory holds, unless that is too small
// for the operands. The driver loads a kernel's code when it first runs, and the memory that
// takes must be known before a plan is made. The context must be current.
func (d *Device) loadAlgorithm(c candidates, way driver.Algorithm) (err error) {
	t := &timing{candidates: c, d: d, cuda: d.lib.CUDA}
	fits, err := t.open()
	defer func() { err = errors.Join(err, t.close()) }()
	if errors.Is(err, errScratchLimit) {
		return nil
	}
	if err != nil || !fits {
		return err
	}
	t.prepared.Algorithm = way
	if err := t.begin(); err != nil {
		return err
	}
	return errors.Join(t.run(), t.cuda.SyncStream(t.stream, pollAlone))
}

// errScratchLimit says that the limit on scratch memory is too low for a matmul.
var errScratchLimit = errors.New("scratch memory is limited")

// LimitScratch implements device.ScratchLimiter.
func (d *Device) LimitScratch(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scratch = bytes
}

// timing holds what algorithms are timed with: operands, a stream and two events.
type timing struct {
	candidates
	d        *Device
	cuda     *driver.CUDA
	memory   driver.Pointer
	size     int64
	a, b, c  driver.Pointer
	bias     driver.Pointer
	scratch  driver.Pointer
	stream   driver.Stream
	from, to driver.Event
}

// open allocates the operands; false where there is not enough memory.
func (t *timing) open() (fits bool, err error) {
	p := t.gemm
	place := func(bytes int64) int64 {
		at := t.size
		t.size += aligned(bytes)
		return at
	}
	a, b, c := place(t.operandBytes(p.A, t.batch.A)), place(t.operandBytes(p.B, t.batch.B)), place(t.operandBytes(p.D, t.batch.D))
	bias, work := place(4*p.D.Rows), place(gemmWorkspace)
	t.d.mu.Lock()
	room, scratch := t.d.limit-t.d.held, t.d.scratch
	t.d.mu.Unlock()
	if scratch > 0 && t.size > scratch+gemmWorkspace { // no plan has memory for the operands
		return false, errScratchLimit
	}
	if t.size > room {
		return false, nil
	}
	if t.memory, err = t.cuda.Alloc(t.size); err != nil {
		var answer *driver.Error
		if errors.As(err, &answer) && answer.Code == driver.OutOfMemory {
			return false, nil
		}
		return false, err
	}
	at := func(offset int64) driver.Pointer { return t.memory + driver.Pointer(offset) }
	t.a, t.b, t.c, t.bias, t.scratch = at(a), at(b), at(c), at(bias), at(work)
	var errs [4]error
	t.stream, errs[0] = t.cuda.NewStream()
	t.from, errs[1] = t.cuda.NewEvent()
	t.to, errs[2] = t.cuda.NewEvent()
	return true, errors.Join(errs[:]...)
}

// operandBytes is the size of an operand, with the matrices of a batch so many elements apart.
func (t *timing) operandBytes(m driver.Matrix, step int64) int64 {
	for element, real := range blasTypes {
		if real == m.Type {
			return element.Bytes(m.Step*m.Columns + step*max(t.batch.Count-1, 0))
		}
	}
	return 0
}

// fill writes random operands: 16-bit words that are small numbers of either sign in every type.
func (t *timing) fill() error {
	block, state := make([]uint16, 1<<19), uint32(1)
	for i := range block {
		state = state*1664525 + 1013904223
		block[i] = uint16(state>>16)&0x83ff | 0x3c00
	}
	done := min(t.size, int64(len(block))*2)
	if err := t.cuda.Copy(t.memory, driver.Pointer(uintptr(unsafe.Pointer(&block[0]))), done, t.stream); err != nil {
		return err
	}
	for ; done < t.size; done *= 2 {
		if err := t.cuda.Copy(t.memory+driver.Pointer(done), t.memory, min(done, t.size-done), t.stream); err != nil {
			return err
		}
	}
	return t.cuda.SyncStream(t.stream, pollAlone) // the block may be collected from here on
}

// begin sets what does not change from one matmul to the next.
func (t *timing) begin() error {
	if !t.gemm.Bias {
		return nil
	}
	return t.d.lib.BLAS.SetBias(t.prepared, t.bias)
}

func (t *timing) run() error {
	return t.d.lib.BLAS.Run(t.d.blas, t.prepared, t.a, t.b, t.c, t.c, t.scratch, t.stream)
}

// lap is the mean time of n matmuls by an algorithm.
func (t *timing) lap(way driver.Algorithm, n int) (time.Duration, error) {
	t.prepared.Algorithm = way
	if err := errors.Join(t.begin(), t.cuda.Record(t.from, t.stream)); err != nil {
		return 0, err
	}
	for range n {
		if err := t.run(); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(t.cuda.Record(t.to, t.stream), t.cuda.SyncStream(t.stream, pollAlone)); err != nil {
		return 0, err
	}
	took, err := t.cuda.Elapsed(t.from, t.to)
	return took / time.Duration(n), err
}

// close gives everything back.
func (t *timing) close() error {
	var errs []error
	for _, e := range []driver.Event{t.from, t.to} {
		if e != 0 {
			errs = append(errs, t.cuda.CloseEvent(e))
		}
	}
	if t.stream != 0 {
		errs = append(errs, t.cuda.CloseStream(t.stream))
	}
	if t.memory != 0 {
		errs = append(errs, t.cuda.Free(t.memory))
	}
	return errors.Join(errs...)
}
