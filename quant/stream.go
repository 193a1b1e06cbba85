package quant

import (
	"fmt"
	"io"
	"runtime"
	"sync"

	"spillway/dtype"
)

// Numbers gives the elements of a tensor from the first-th on. It is called from
// several goroutines.
type Numbers func(first int64, dst []float32) error

// pieceElements is how many elements one goroutine codes at a time: whole blocks of
// every size there is.
const pieceElements = 64 << 10

// Storage reads as the storage of an NF4 or FP4 tensor of n elements. Numbers are
// pulled and coded as it is read, so that a tensor may be larger than memory; what is
// held is an absmax for every 64 of them.
func Storage(t dtype.Type, n int64, from Numbers) (io.Reader, error) {
	if t != dtype.NF4 && t != dtype.FP4 {
		return nil, fmt.Errorf("%v is not a 4-bit type", t)
	}
	codes := NewCodes(FourBitOf(t), dtype.BlockElements, n, from)
	return io.MultiReader(codes, &scalesReader{codes: codes}), nil
}

// scalesReader reads as the storage behind the codes.
type scalesReader struct {
	codes *Codes
	made  bool
	left  []byte
}

func (r *scalesReader) Read(p []byte) (int, error) {
	if !r.made {
		s := NewScales(r.codes.Absmax)
		r.left = append(append(s.Codes, s.Groups...), make([]byte, 4)...)
		putF32(r.left[len(r.left)-4:], 0, s.Offset)
		r.made = true
	}
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Codes reads as the packed codes of a tensor, made while it is read.
type Codes struct {
	// Absmax of the blocks coded so far; of all of them after io.EOF.
	Absmax []float32

	code  *FourBit
	block int
	n     int64 // elements of the tensor
	first int64 // not coded yet
	from  Numbers

	pieces []piece
	left   []byte // coded and not read yet
	room   []byte
}

// piece is what one goroutine works on.
type piece struct {
	src []float32
	err error
}

// NewCodes codes n numbers in blocks of a given even size that divides 65536.
func NewCodes(code *FourBit, block int, n int64, from Numbers) *Codes {
	return &Codes{code: code, block: block, n: n, from: from}
}

// Read gives codes, and io.EOF after the last.
func (c *Codes) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		if c.first == c.n {
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

// refill codes the next pieces, one per processor.
func (c *Codes) refill() error {
	if c.pieces == nil {
		c.pieces = make([]piece, min(int64(runtime.GOMAXPROCS(0)), (c.n+pieceElements-1)/pieceElements))
		c.room = make([]byte, len(c.pieces)*pieceElements/2)
	}
	todo := min(c.n-c.first, int64(len(c.pieces)*pieceElements))
	at := len(c.Absmax)
	c.Absmax = append(c.Absmax, make([]float32, ceil(int(todo), c.block))...)
	var wait sync.WaitGroup
	for i := range ceil(int(todo), pieceElements) {
		wait.Go(func() {
			skip := i * pieceElements
			n := int(min(todo-int64(skip), pieceElements))
			p := &c.pieces[i]
			p.err = p.read(c.from, c.first+int64(skip), n)
			c.code.Encode(c.room[skip/2:skip/2+ceil(n, 2)], c.Absmax[at+skip/c.block:], p.src, c.block)
		})
	}
	wait.Wait()
	for _, p := range c.pieces {
		if p.err != nil {
			return p.err
		}
	}
	c.first += todo
	c.left = c.room[:ceil(int(todo), 2)]
	return nil
}

// read pulls n numbers and refuses those that have no code.
func (p *piece) read(from Numbers, first int64, n int) error {
	if p.src == nil {
		p.src = make([]float32, pieceElements)
	}
	p.src = p.src[:n]
	if err := from(first, p.src); err != nil {
		return err
	}
	if bad := notFinite(p.src); bad >= 0 {
		return fmt.Errorf("element %d is %v, which has no 4-bit code", first+int64(bad), p.src[bad])
	}
	return nil
}
