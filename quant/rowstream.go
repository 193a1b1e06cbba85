package quant

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"spillway/dtype"
)

// RowCodes reads as the codes of a tensor of a row type, made while it is read: whole
// rows are pulled and coded, on all processors.
type RowCodes struct {
	// Scales of the rows; all are known after io.EOF.
	Scales []float32

	kind  dtype.Type
	cols  int64
	from  Numbers
	next  int64       // row not coded yet
	rooms [][]float32 // of the rows one goroutine works on
	codes []byte
	left  []byte // coded and not read yet
}

// NewRowCodes codes a tensor of a row type.
func NewRowCodes(kind dtype.Type, rows, cols int64, from Numbers) *RowCodes {
	return &RowCodes{Scales: make([]float32, rows), kind: kind, cols: cols, from: from}
}

// Read gives codes, and io.EOF after the last.
func (c *RowCodes) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		if c.next == int64(len(c.Scales)) {
			return 0, io.EOF
		}
		if err := c.refill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

// step is how many rows one goroutine works on at a time.
func (c *RowCodes) step() int64 { return max(1, pieceElements/max(c.cols, 1)) }

// refill codes a step of rows on every processor.
func (c *RowCodes) refill() error {
	step, first := c.step(), c.next
	end := min(int64(len(c.Scales)), first+step*int64(runtime.GOMAXPROCS(0)))
	workers := int((end - first + step - 1) / step)
	for len(c.rooms) < workers {
		c.rooms = append(c.rooms, make([]float32, step*c.cols))
	}
	if need := (end - first) * c.cols; int64(cap(c.codes)) < need {
		c.codes = make([]byte, need)
	}
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for i := range workers {
		from := first + int64(i)*step
		wait.Go(func() {
			errs[i] = c.code(c.rooms[i], from, min(from+step, end), c.codes[(from-first)*c.cols:])
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	c.next, c.left = end, c.codes[:(end-first)*c.cols]
	return nil
}

func (c *RowCodes) code(room []float32, first, end int64, codes []byte) error {
	src := room[:(end-first)*c.cols]
	if err := c.from(first*c.cols, src); err != nil {
		return err
	}
	for r := range end - first {
		part := src[r*c.cols : (r+1)*c.cols]
		scale, err := encodeRow(c.kind, codes[r*c.cols:(r+1)*c.cols], part)
		c.Scales[first+r] = scale
		if bad := notFinite(c.Scales[first+r : first+r+1]); bad >= 0 && err == nil {
			bad = notFinite(part)
			err = fmt.Errorf("element %d is %v, which has no 8-bit code", bad, part[bad])
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", first+r, err)
		}
	}
	return nil
}

// Floats are numbers as the bytes of f32.
func Floats(list []float32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, f := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
