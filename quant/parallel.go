package quant

import (
	"io"
	"runtime"
	"slices"
	"sync"
)

// parallelReader reads as the parts of a stream, in order, while the next ones are made on
// all cores. A few more parts than there are cores are in work, so that some wait for the
// disk while others are encoded, and all go on while the caller writes.
type parallelReader struct {
	parts int64
	make  func(part int64, b *buffer) error

	buffers []*buffer
	started int64
	taken   int64
	left    []byte // of the part taken last
}

// encodeParts reads as n numbers that are pulled and encoded a step at a time. A buffer has
// the numbers of the part that begins at the element first, and size bytes for their codes.
func encodeParts(n, step int64, from ReadFunc, size func(count int64) int64, encode func(first int64, b *buffer) error) *parallelReader {
	return &parallelReader{parts: (n + step - 1) / step, make: func(part int64, b *buffer) error {
		first := part * step
		count := min(n-first, step)
		b.numbers = slices.Grow(b.numbers[:0], int(count))[:count]
		b.bytes = slices.Grow(b.bytes[:0], int(size(count)))[:size(count)]
		if err := from(first, b.numbers); err != nil {
			return err
		}
		return encode(first, b)
	}}
}

// buffer is where one part is made. Its memory is reused by the next.
type buffer struct {
	numbers []float32
	bytes   []byte

	done chan struct{}
	err  error
}

// bufferPool has buffers for the next stream: weights follow each other by the hundred.
var bufferPool = sync.Pool{New: func() any { return new(buffer) }}

// Read gives bytes, and io.EOF after the last part.
func (a *parallelReader) Read(p []byte) (int, error) {
	for len(a.left) == 0 {
		if a.taken == a.parts {
			for _, r := range a.buffers { // no part is being made or read
				bufferPool.Put(r)
			}
			a.buffers = nil
			return 0, io.EOF
		}
		if err := a.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, a.left)
	a.left = a.left[n:]
	return n, nil
}

// next starts as many parts as there are buffers and waits for the next in order.
func (a *parallelReader) next() error {
	if a.buffers == nil {
		a.buffers = make([]*buffer, min(a.parts, int64(runtime.GOMAXPROCS(0))+extraBuffers))
		for i := range a.buffers {
			a.buffers[i] = bufferPool.Get().(*buffer)
		}
	}
	for ; a.started < min(a.parts, a.taken+int64(len(a.buffers))); a.started++ {
		r, part := a.bufferOf(a.started), a.started
		r.done = make(chan struct{})
		go func() {
			defer close(r.done)
			r.err = a.make(part, r)
		}()
	}
	r := a.bufferOf(a.taken)
	<-r.done
	if r.err != nil {
		for part := a.taken; part < a.started; part++ { // nothing is read any more once the error is known
			<-a.bufferOf(part).done
		}
		return r.err
	}
	a.left = r.bytes
	a.taken++
	return nil
}

// extraBuffers are for parts that wait for a disk.
const extraBuffers = 2

func (a *parallelReader) bufferOf(part int64) *buffer { return a.buffers[part%int64(len(a.buffers))] }
