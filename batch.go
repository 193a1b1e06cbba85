package spillway

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
	"spillway/train"
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
// "input", "mask" (package nn lists the usual ones). Nothing in it is ignored: a part
// that the model does not read is an error, and so is a missing one, but for
// "positions", which count from 0 in each sample where they are left out.
type Batch map[string]Tensor

// positions may be left out of a batch.
const positions = "positions"

// part is what a model reads of a batch: for each dimension its size, or that it is
// the number of samples or of positions.
type part struct {
	name string
	t    dtype.Type
	dims []dim
}

type dim struct {
	size         int64
	samples, seq bool
}

// hasPositions says whether the number of positions matters to a part.
func (p part) hasPositions() bool {
	return slices.ContainsFunc(p.dims, func(d dim) bool { return d.seq })
}

// matched is a batch that has been held against the parts of a model.
type matched struct {
	batch Batch
	parts []part
	sizes
}

// sizes of a batch.
type sizes struct{ samples, seq int64 }

func (s sizes) String() string { return fmt.Sprintf("%d × %d", s.samples, s.seq) }

// match holds a batch against what a model reads, and finds its sizes.
func match(parts []part, b Batch) (matched, error) {
	m := matched{batch: maps.Clone(b), parts: parts}
	for _, p := range parts {
		t, ok := b[p.name]
		if !ok && p.name == positions {
			continue
		}
		if !ok {
			return m, fmt.Errorf("the batch lacks %q; the model reads %s", p.name, names(parts))
		}
		if err := m.take(p, t); err != nil {
			return m, fmt.Errorf("%s of the batch: %w", p.name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return m, fmt.Errorf("the batch has %q, which the model does not read here; it reads %s", name, names(parts))
		}
	}
	m.samples, m.seq = max(m.samples, 1), max(m.seq, 1)
	m.count()
	return m, nil
}

func names(parts []part) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = p.name
	}
	return strings.Join(list, ", ")
}

// take checks one part and learns from it how many samples and positions there are.
func (m *matched) take(p part, t Tensor) error {
	n, kind := len(t.Floats), dtype.F32
	if t.Floats == nil {
		n, kind = len(t.Ints), dtype.I32
	}
	switch err := t.Shape.Check(); {
	case err != nil:
		return err
	case t.Floats != nil && t.Ints != nil || kind != p.t:
		return fmt.Errorf("it holds %v, the model reads %v", kind, p.t)
	case int64(n) != t.Shape.Elements():
		return fmt.Errorf("its shape %v has %d elements, it holds %d", t.Shape, t.Shape.Elements(), n)
	case len(t.Shape) != len(p.dims):
		return fmt.Errorf("its shape is %v, the model reads %d dimensions", t.Shape, len(p.dims))
	}
	for i, d := range p.dims {
		want := d.size
		switch {
		case d.samples:
			want = learn(&m.samples, t.Shape[i])
		case d.seq:
			want = learn(&m.seq, t.Shape[i])
		}
		if t.Shape[i] != want || want == 0 {
			return fmt.Errorf("dimension %d of its shape %v is %d, the model and the rest of the batch have %d", i, t.Shape, t.Shape[i], want)
		}
	}
	return nil
}

// learn takes a size over where none is known yet.
func learn(known *int64, size int64) int64 {
	if *known == 0 {
		*known = size
	}
	return *known
}

// count fills in positions that were left out.
func (m *matched) count() {
	if _, given := m.batch[positions]; given || !slices.ContainsFunc(m.parts, func(p part) bool { return p.name == positions }) {
		return
	}
	list := make([]int32, m.samples*m.seq)
	for i := range list {
		list[i] = int32(int64(i) % m.seq)
	}
	m.batch[positions] = Ints(list, m.samples, m.seq)
}

// counted is what the loss of the batch is the mean over.
func (m *matched) counted() (n int64) {
	for _, id := range m.batch["targets"].Ints {
		if id != op.IgnoreIndex {
			n++
		}
	}
	return n + int64(len(m.batch["target"].Floats))
}

// fill writes the batch to the places of a plan's micro-batches: samples one after
// another, and what is not of samples, as masks are, whole to each.
func (m *matched) fill(to train.Parts) error {
	for _, p := range m.parts {
		t := m.batch[p.name]
		for j := range to.MicroBatches {
			dst, err := to.Part(j, p.name)
			if err != nil {
				return err
			}
			from := 0
			if len(p.dims) > 0 && p.dims[0].samples {
				from = j * len(dst) / 4
			}
			if t.Ints != nil {
				put(dst, t.Ints[from:], func(v int32) uint32 { return uint32(v) })
			} else {
				put(dst, t.Floats[from:], math.Float32bits)
			}
		}
	}
	return nil
}

func put[E any](dst []byte, from []E, bits func(E) uint32) {
	for i := range len(dst) / 4 {
		binary.LittleEndian.PutUint32(dst[4*i:], bits(from[i]))
	}
}
