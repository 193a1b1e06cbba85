// Package batch holds batches against what a model reads of them.
//
// A Layout knows the tensors that a model reads, and which of their dimensions are
// sequences and which are positions. Layout.Match checks a batch and finds its size;
// Matched.Fill copies it to the places that a plan has for its micro-batches.
package batch

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Tensor is numbers with a shape, the last dimension innermost: floats, or ints for
// ids and masks.
type Tensor struct {
	Shape  shape.Shape
	Floats []float32
	Ints   []int32
}

// Floats makes a tensor of numbers.
func Floats(values []float32, dims ...int64) Tensor { return Tensor{Shape: dims, Floats: values} }

// Ints makes a tensor of ids.
func Ints(values []int32, dims ...int64) Tensor { return Tensor{Shape: dims, Ints: values} }

// Batch is what a model reads, by the names it reads it by: "tokens", "targets",
// "input", "mask" (package nn lists the usual ones). A tensor that the model reads in no
// task is an error, and so is a missing one. Inference and evaluation take batches of training. Only "positions"
// may be left out; they then count from 0 in each sequence.
type Batch map[string]Tensor

// positions may be left out of a batch.
const positions = "positions"

// Size is how many sequences a batch has, and how many positions each of them.
type Size struct{ Sequences, Positions int64 }

// String is the size as people write it: "4 × 128".
func (s Size) String() string { return fmt.Sprintf("%d × %d", s.Sequences, s.Positions) }

// Matched is a batch that fits a layout.
type Matched struct {
	Size
	batch  Batch
	layout Layout
}

// Match checks a batch against what the model reads, and finds its size.
func (l Layout) Match(b Batch) (Matched, error) {
	m := Matched{batch: maps.Clone(b), layout: l}
	for _, p := range l.parts {
		t, ok := b[p.name]
		if !ok && p.name == positions {
			continue
		}
		if !ok {
			return m, fmt.Errorf("the batch lacks %q; the model reads %s", p.name, l)
		}
		if err := m.check(p, t); err != nil {
			return m, fmt.Errorf("%s of the batch: %w", p.name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if !l.Reads(name) {
			return m, fmt.Errorf("the batch has %q, which the model does not read here; it reads %s", name, l)
		}
	}
	m.Sequences, m.Positions = max(m.Sequences, 1), max(m.Positions, 1)
	if _, given := b[positions]; !given && l.Reads(positions) {
		m.batch[positions] = m.countedPositions()
	}
	return m, nil
}

// Match checks another batch against what the model reads.
func (m *Matched) Match(b Batch) (Matched, error) { return m.layout.Match(b) }

// String lists the names of what the model reads.
func (l Layout) String() string {
	list := make([]string, len(l.parts))
	for i, p := range l.parts {
		list[i] = p.name
	}
	return strings.Join(list, ", ")
}

// check compares one tensor with what the model reads, and learns from it how many
// sequences and positions there are.
func (m *Matched) check(p part, t Tensor) error {
	n, kind, reads := len(t.Floats), dtype.F32, p.t
	if t.Floats == nil {
		n, kind = len(t.Ints), dtype.I32
	}
	if isNarrow(reads) {
		reads = dtype.F32 // they are rounded on the way
	}
	switch err := t.Shape.Check(); {
	case err != nil:
		return err
	case t.Floats != nil && t.Ints != nil || kind != reads:
		return fmt.Errorf("it holds %v, the model reads %v", kind, reads)
	case int64(n) != t.Shape.Elements():
		return fmt.Errorf("its shape %v has %d elements, it holds %d", t.Shape, t.Shape.Elements(), n)
	case len(t.Shape) != len(p.dims):
		return fmt.Errorf("its shape is %v, the model reads %d dimensions", t.Shape, len(p.dims))
	}
	for i, d := range p.dims {
		want := d.fixed
		if (d.sequences || d.positions) && t.Shape[i] == 0 {
			return fmt.Errorf("its shape is %v: it has no samples or positions; leave such a batch out", t.Shape)
		}
		switch {
		case d.sequences:
			want = learn(&m.Sequences, t.Shape[i])
		case d.positions:
			want = learn(&m.Positions, t.Shape[i])
		}
		if t.Shape[i] != want || want == 0 {
			return fmt.Errorf("dimension %d of its shape %v is %d, the model and the rest of the batch have %d", i, t.Shape, t.Shape[i], want)
		}
	}
	return nil
}

// learn takes a size over where none is known yet, and returns the known one.
func learn(known *int64, size int64) int64 {
	if *known == 0 {
		*known = size
	}
	return *known
}

// countedPositions count from 0 in each sequence.
func (m *Matched) countedPositions() Tensor {
	list := make([]int32, m.Sequences*m.Positions)
	for i := range list {
		list[i] = int32(int64(i) % m.Positions)
	}
	return Ints(list, m.Sequences, m.Positions)
}

// Counted is how many numbers the loss of the batch is the mean over: targets, or samples where there are
// none of the usual names.
func (m *Matched) Counted() (n int64) {
	if !m.layout.Reads("targets") && !m.layout.Reads("target") {
		return m.Sequences
	}
	for _, id := range m.batch["targets"].Ints {
		if id != op.IgnoreIndex {
			n++
		}
	}
	for _, t := range []Tensor{{Floats: m.batch["targets"].Floats}, m.batch["target"]} { // of losses of one's own
		n += int64(len(t.Floats) + len(t.Ints))
	}
	return n
}

// Fill writes the batch to the tensors of a plan's micro-batches: sequences one after
// another, and what has no sequences, such as a mask, whole to each.
func (m *Matched) Fill(microBatches int, tensor func(micro int, name string) ([]byte, error)) error {
	for _, p := range m.layout.parts {
		t := m.batch[p.name]
		for j := range microBatches {
			dst, err := tensor(j, p.name)
			if err != nil {
				return err
			}
			from := 0
			if len(p.dims) > 0 && p.dims[0].sequences {
				from = j * len(dst) / int(p.t.Bytes(1))
			}
			switch {
			case t.Ints != nil:
				put(dst, t.Ints[from:])
			case isNarrow(p.t):
				putNarrow(p.t, dst, t.Floats[from:])
			default:
				put(dst, t.Floats[from:])
			}
		}
	}
	return nil
}

// isNarrow says whether floats of a batch are rounded to a type.
func isNarrow(t dtype.Type) bool { return t == dtype.BF16 || t == dtype.F16 }

// put copies numbers of 4 bytes to where an iteration reads them, which is in the order of this computer.
func put[E float32 | int32](dst []byte, from []E) {
	if len(dst) == 0 {
		return
	}
	src := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(from[:len(dst)/4]))), len(dst))
	inParts(len(dst), func(at, end int) { copy(dst[at:end], src[at:end]) })
}

// putNarrow rounds numbers to a 16-bit type on the way, as a cast of them does.
func putNarrow(t dtype.Type, dst []byte, from []float32) {
	if len(dst) == 0 {
		return
	}
	codes := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/2)
	inParts(len(codes), func(at, end int) { t.Narrow(codes[at:end], from[at:end]) })
}

// inParts does something in parts, many of them at once: a core alone copies images slower than a GPU takes them.
func inParts(n int, do func(at, end int)) {
	if n <= copyPart {
		do(0, n)
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), mostCopiers, n/copyPart) {
		wait.Go(func() {
			for at := int(next.Add(copyPart)) - copyPart; at < n; at = int(next.Add(copyPart)) - copyPart {
				do(at, min(at+copyPart, n))
			}
		})
	}
	wait.Wait()
}

const (
	copyPart    = 1 << 20 // bytes that a core copies at a time, or numbers that it rounds
	mostCopiers = 8       // more cores than this read memory no faster
)
