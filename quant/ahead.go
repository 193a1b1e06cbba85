package quant

import (
	"io"
	"runtime"
	"sync"
)

// ahead reads as the parts of a stream, in order, while the next ones are made: a few more
// at a time than there are processors, so that some wait for the disk while others are
// coded, and all go on while a reader writes.
type ahead struct {
	parts int64
	make  func(part int64, room *room) ([]byte, error)

	rooms   []*room
	started int64
	taken   int64
	left    []byte // of the part taken last
}

// room is where one part is made.
type room struct {
	numbers []float32
	bytes   []byte

	done chan struct{}
	out  []byte
	err  error
}

// rooms are kept from stream to stream: weights follow each other by the hundred.
var rooms = sync.Pool{New: func() any { return new(room) }}

// size gives a room space, kept for the next part.
func (r *room) size(numbers, bytes int) {
	if cap(r.numbers) < numbers {
		r.numbers = make([]float32, numbers)
	}
	if cap(r.bytes) < bytes {
		r.bytes = make([]byte, bytes)
	}
	r.numbers, r.bytes = r.numbers[:numbers], r.bytes[:bytes]
}

// Read gives bytes, and io.EOF after the last part.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.left) == 0 {
		if a.taken == a.parts {
			a.giveBack()
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

// next waits for a part, having started those there is room for.
func (a *ahead) next() error {
	if a.rooms == nil {
		a.rooms = make([]*room, min(a.parts, int64(runtime.GOMAXPROCS(0))+extraRooms))
		for i := range a.rooms {
			a.rooms[i] = rooms.Get().(*room)
		}
	}
	for ; a.started < min(a.parts, a.taken+int64(len(a.rooms))); a.started++ {
		r, part := a.room(a.started), a.started
		r.done = make(chan struct{})
		go func() {
			defer close(r.done)
			r.out, r.err = a.make(part, r)
		}()
	}
	r := a.room(a.taken)
	<-r.done
	if r.err != nil {
		a.wait() // nothing is read any more once the error is known
		return r.err
	}
	a.left = r.out
	a.taken++
	return nil
}

// extraRooms are for parts that wait for a disk.
const extraRooms = 2

func (a *ahead) room(part int64) *room { return a.rooms[part%int64(len(a.rooms))] }

// giveBack is for the end, when no part is being made or read.
func (a *ahead) giveBack() {
	for _, r := range a.rooms {
		rooms.Put(r)
	}
	a.rooms = nil
}

func (a *ahead) wait() {
	for part := a.taken; part < a.started; part++ {
		<-a.room(part).done
	}
}
