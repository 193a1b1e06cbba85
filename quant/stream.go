package quant

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"

	"spillway/dtype"
)

// Numbers gives the elements of a tensor from the first-th on. It is called from
// several goroutines.
type Numbers func(first int64, dst []float32) error

// Storage reads as the storage of a weight, a matrix of rows and columns in a 4-bit or a
// row type. Numbers are pulled and coded as it is read, so that a tensor may be larger
// than memory; what is held is a scale for every 64 of them, or for every row.
func Storage(t dtype.Type, rows, cols int64, from Numbers) (io.Reader, error) {
	switch {
	case t.ByRows():
		codes := NewRowCodes(t, rows, cols, from)
		return io.MultiReader(codes, &tailReader{tail: func() []byte { return Floats(codes.Scales) }}), nil
	case t == dtype.NF4 || t == dtype.FP4:
		codes := NewCodes(FourBitOf(t), dtype.BlockElements, rows*cols, from)
		return io.MultiReader(codes, &tailReader{tail: func() []byte { return NewScales(codes.Absmax).Append(nil) }}), nil
	}
	return nil, fmt.Errorf("%v is not a type weights are coded in", t)
}

// tailReader reads as the storage behind the codes, once all are made.
type tailReader struct {
	tail func() []byte
	all  *bytes.Reader
}

func (r *tailReader) Read(p []byte) (int, error) {
	if r.all == nil {
		r.all = bytes.NewReader(r.tail())
	}
	return r.all.Read(p)
}

// Codes reads as the packed codes of a tensor, made while it is read.
type Codes struct {
	// Absmax of the blocks; all are known after io.EOF.
	Absmax []float32

	code  *FourBit
	block int64
	from  puller
	room  []byte
	left  []byte // coded and not read yet
}

// NewCodes codes n numbers in blocks of a given even size that divides 65536.
func NewCodes(code *FourBit, block int, n int64, from Numbers) *Codes {
	return &Codes{Absmax: make([]float32, (n+int64(block)-1)/int64(block)), code: code, block: int64(block), from: puller{n: n, from: from}}
}

// Read gives codes, and io.EOF after the last.
func (c *Codes) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		if c.from.first == c.from.n {
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

func (c *Codes) refill() error {
	start := c.from.first
	if c.room == nil {
		c.room = make([]byte, c.from.most()/2+1)
	}
	n, err := c.from.next(func(first int64, src []float32) error {
		at, absmax := int(first-start)/2, c.Absmax[first/c.block:][:ceil(len(src), int(c.block))]
		c.code.Encode(c.room[at:at+ceil(len(src), 2)], absmax, src, int(c.block))
		if notFinite(absmax) < 0 {
			return nil
		}
		bad := notFinite(src)
		return fmt.Errorf("element %d is %v, which has no 4-bit code", first+int64(bad), src[bad])
	})
	c.left = c.room[:ceil(n, 2)]
	return err
}

// pieceElements is how many elements one goroutine works on at a time: whole blocks of
// every size there is.
const pieceElements = 64 << 10

// puller takes a tensor in pieces, as many at a time as there are processors.
type puller struct {
	n     int64 // elements of the tensor
	first int64 // not taken yet
	from  Numbers
	rooms [][]float32 // one for each piece taken at a time
}

// most is how many elements are taken at a time.
func (p *puller) most() int64 { return min(p.n, int64(runtime.GOMAXPROCS(0))*pieceElements) }

// next takes the next pieces, gives each to do on a goroutine of its own, and returns
// how many elements they had.
func (p *puller) next(do func(first int64, src []float32) error) (int, error) {
	n := min(p.most(), p.n-p.first)
	pieces := ceil(int(n), pieceElements)
	for len(p.rooms) < pieces {
		p.rooms = append(p.rooms, make([]float32, min(n, pieceElements)))
	}
	errs := make([]error, pieces)
	var wait sync.WaitGroup
	for i := range pieces {
		wait.Go(func() {
			skip := int64(i) * pieceElements
			src := p.rooms[i][:min(n-skip, pieceElements)]
			if errs[i] = p.from(p.first+skip, src); errs[i] == nil {
				errs[i] = do(p.first+skip, src)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	p.first += n
	return int(n), nil
}
