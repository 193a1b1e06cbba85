package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"spillway/device"
	"spillway/internal/vfs"
)

// toy is a training whose state is on disk. Each iteration reads every part of the
// state, changes each word by what it was, and writes it back, so that a state mixed
// from two iterations, or one carried out twice, comes out wrong for ever.
type toy struct {
	disk        *Disk
	arena, host device.Memory
	in, out     device.Queue
}

const (
	toyBytes   = 350_001 // of the arena
	toyScratch = 170_000 // its scratch region ...
	toyEnd     = 250_000 // ... ends here
)

func toyRegions() []Region {
	return []Region{
		{Kind: Journaled, Offset: 0, Bytes: toyScratch},
		{Kind: Scratch, Offset: toyScratch, Bytes: toyEnd - toyScratch},
		{Kind: Journaled, Offset: toyEnd, Bytes: toyBytes - toyEnd},
	}
}

// toyParts are read and written one after the other: pages whole, halved, and many.
var toyParts = [][2]int64{{0, 64 << 10}, {64 << 10, 100_000}, {100_000, toyScratch}, {toyEnd, toyEnd + 13}, {toyEnd + 13, toyBytes}}

// advance makes the next iteration of bytes that lie at an offset.
func advance(p []byte, offset, iteration int64) {
	var word [8]byte
	for i := 0; i < len(p); i += 8 {
		n := copy(word[:], p[i:])
		w := binary.LittleEndian.Uint64(word[:])
		w = w*6364136223846793005 + uint64(iteration)<<32 + uint64(offset) + uint64(i) + 1
		binary.LittleEndian.PutUint64(word[:], w^w>>29)
		copy(p[i:i+n], word[:])
	}
}

// expected is the state after an iteration, made from the one before in place.
func expected(state []byte, iteration int64) {
	for _, part := range toyParts {
		advance(state[part[0]:part[1]], part[0], iteration)
	}
}

// openToy opens the disk and goes on from what it holds; last is -1 for nothing.
func openToy(fs vfs.FS, dir string) (t *toy, last int64, err error) {
	t = &toy{}
	if t.disk, err = Open(Options{Dir: dir, Limit: 1 << 20, Regions: toyRegions(), Disk: fs}); err != nil {
		return nil, none, err
	}
	last, err = t.disk.Recover()
	if errors.Is(err, ErrNoCommit) {
		err = nil
	}
	if err == nil {
		t.arena, err = t.disk.Alloc(toyBytes)
	}
	if err == nil {
		t.host, err = t.disk.HostAlloc(toyBytes)
	}
	if err == nil {
		t.in, err = t.disk.Queue("in")
	}
	if err == nil {
		t.out, err = t.disk.Queue("out")
	}
	if err != nil {
		return nil, last, errors.Join(err, t.close())
	}
	return t, last, nil
}

func (t *toy) close() error {
	var errs []error
	for _, q := range []device.Queue{t.in, t.out} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	for _, m := range []device.Memory{t.arena, t.host} {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	return errors.Join(append(errs, t.disk.Close())...)
}

// iterate carries one iteration out, without its commit.
func (t *toy) iterate(iteration int64) error {
	if err := t.disk.Begin(iteration); err != nil {
		return err
	}
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	for _, p := range toyParts {
		at, n := p[0], p[1]-p[0]
		do(t.in.Copy(part(t.host, at, n), part(t.arena, at, n)))
		do(t.in.Sync())
		// By way of the scratch region, like a gradient; and first something wrong
		// to the state itself, so that a page is written twice.
		n = min(n, toyEnd-toyScratch)
		do(t.out.Copy(part(t.arena, toyScratch, n), part(t.host, at, n)))
		do(t.out.Copy(part(t.arena, at+1, n-1), part(t.arena, toyScratch, n-1)))
		do(t.out.Sync())
		advance(t.host.Host()[p[0]:p[1]], at, iteration)
		do(t.out.Copy(part(t.arena, at, p[1]-at), part(t.host, at, p[1]-at)))
	}
	do(t.out.Sync())
	return errors.Join(errs...)
}

func (t *toy) step(iteration int64) error {
	if err := t.iterate(iteration); err != nil {
		return err
	}
	return t.disk.Commit(iteration)
}

// check compares the state on disk with the one expected.
func (t *toy) check(want []byte) error {
	for _, p := range toyParts {
		b := part(t.host, p[0], p[1]-p[0])
		if err := errors.Join(t.in.Copy(b, part(t.arena, p[0], p[1]-p[0])), t.in.Sync()); err != nil {
			return err
		}
		if !bytes.Equal(b.Host(), want[p[0]:p[1]]) {
			return fmt.Errorf("bytes %d to %d differ", p[0], p[1])
		}
	}
	return nil
}

// states are the expected states after each of n iterations, by iteration.
func states(n int64) [][]byte {
	list := make([][]byte, n)
	state := make([]byte, toyBytes)
	for i := range n {
		expected(state, i)
		list[i] = bytes.Clone(state)
	}
	return list
}

func TestToyWithoutFaults(t *testing.T) {
	want := states(6)
	dir := t.TempDir()
	for from := int64(0); from < 6; from += 2 {
		toy, last, err := openToy(nil, dir)
		must(t, err)
		if last != from-1 {
			t.Fatalf("the disk holds iteration %d, want %d", last, from-1)
		}
		for i := from; i < from+2; i++ {
			must(t, toy.step(i), toy.check(want[i]))
		}
		must(t, toy.close())
	}
	d := open(t, Options{Dir: dir})
	if _, err := d.Alloc(10); err == nil {
		t.Error("memory was given where an earlier state would be lost")
	}
	must(t, d.Discard(), d.Close())
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left after Discard: %v", names)
	}
}
