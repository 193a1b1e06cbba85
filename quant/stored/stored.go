// Package stored reads and writes quantized weights the way other libraries store them in
// files, which is how transformers saves a quantized model. A quantized weight is several
// tensors there: codes under the weight's own name, and scales under names derived from it.
//
//	fourbit.go     nf4 and fp4, as bitsandbytes stores them
//	int8.go        int8 by rows, as bitsandbytes stores it for LLM.int8
//	compressed.go  8-bit floats by rows, as compressed-tensors stores them
//
// Each file registers a layout: which codecs of package quant it is for, how to find such
// weights among a folder's tensors, how to write them, and what config.json says of them.
// Collect finds what belongs together. Every number is decoded with the maps in the file,
// so it is the number those libraries compute, to the bit.
package stored

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// Tensor is a weight of a folder: one tensor of its files, or several that are one
// quantized weight. It holds no numbers of its own.
type Tensor struct {
	Name  string
	Type  dtype.Type // a block type of a quantized weight
	Shape shape.Shape
	// Parts are the tensors of the files that it is made of.
	Parts []tensorfile.Tensor

	data    tensorfile.Tensor // codes, or the plain tensor
	encoded encoded           // nil of a plain tensor
}

// encoded is a quantized weight as a library stored it.
type encoded interface {
	// read decodes at most partElements elements from the first-th on.
	read(dst []float32, first int64) error
	// storage is what Tensor.Storage says.
	storage() (r io.Reader, exact, ok bool)
}

// Path is the file the weight, or its codes, are in.
func (t Tensor) Path() string { return t.data.Path }

// DoubleQuantized says whether the scales of a 4-bit weight are quantized again.
func (t Tensor) DoubleQuantized() bool {
	f, ok := t.encoded.(*fourBit)
	return ok && f.nested
}

// Format says, after a type, what is unusual about a quantized weight: " with blocks of
// 128"; "" for nothing.
func (t Tensor) Format() string {
	f, ok := t.encoded.(*fourBit)
	switch {
	case !ok:
		return ""
	case f.block != quant.FourBitBlock:
		return fmt.Sprintf(" with blocks of %d", f.block)
	case !f.nested:
		return " without double quantization"
	}
	return ""
}

// CheckReal refuses a plain tensor whose elements are not those of a weight: codes without
// their scales, say.
func (t Tensor) CheckReal() error {
	if t.encoded == nil {
		return t.data.CheckReal()
	}
	return nil
}

// ReadF32 reads len(dst) elements from the element first on: the numbers that the library
// decodes in f32. It may be called from several goroutines.
func (t Tensor) ReadF32(dst []float32, first int64) error {
	if t.encoded == nil {
		return t.data.ReadF32(dst, first)
	}
	if n := t.Shape.Elements(); first < 0 || first > n || int64(len(dst)) > n-first {
		return fmt.Errorf("weight %s has %d elements, %d from element %d were asked for", t.Name, n, len(dst), first)
	}
	for len(dst) > 0 {
		n := min(len(dst), partElements-int(first%partElements))
		if err := t.encoded.read(dst[:n], first); err != nil {
			return fmt.Errorf("weight %s: %w", t.Name, err)
		}
		dst, first = dst[n:], first+int64(n)
	}
	return nil
}

// partElements is how many elements are decoded at a time: whole blocks of any size.
const partElements = 32 << 10

// Storage gives the weight as package quant stores the type Type, with the file's own codes and
// scales. ok is false where the file's format differs in more than the order of its parts: absmax
// in f32, or other sizes of blocks. Exact says that it decodes to the same numbers; where it is
// false, the file's maps differ from those of package quant in their last bits.
func (t Tensor) Storage() (r io.Reader, exact, ok bool) {
	if t.encoded == nil {
		return nil, false, false
	}
	return t.encoded.storage()
}

// Plain reads the bytes of a plain tensor; ok is false of a quantized weight.
func (t Tensor) Plain() (r io.ReaderAt, ok bool) { return t.data, t.encoded == nil }

// layout is how a library stores weights of some codecs.
type layout struct {
	types   []dtype.Type
	library string // in config.json
	// collect makes the weight that a tensor describes; its Name is "" where the tensor
	// describes none.
	collect func(c *collector, t tensorfile.Tensor) (Tensor, error)
	// outputs are the tensors of a weight to be written, which belong into one file.
	outputs func(w Weight, o Options) ([]tensorfile.Output, error)
	// config is what config.json says of a model with such weights.
	config func(o Options) any
}

// layouts are filled by the init function of each file.
var layouts []layout

func layoutOf(t dtype.Type) (layout, error) {
	for _, l := range layouts {
		if slices.Contains(l.types, t) {
			return l, nil
		}
	}
	return layout{}, fmt.Errorf("%v is not a type weights are stored in; use %s", t, strings.Join(Written(), ", "))
}

// Written lists the formats that quantized weights can be written in, by the names people
// call them.
func Written() (names []string) {
	for _, c := range quant.Weights() {
		if Library(c.Type) != "" {
			names = append(names, c.Alias)
		}
	}
	return names
}

// Library is the Python library whose layout weights of a type are written in, "" for a
// type that is not written.
func Library(t dtype.Type) string {
	for _, l := range layouts {
		if slices.Contains(l.types, t) {
			return l.library
		}
	}
	return ""
}

// Options say how weights are written.
type Options struct {
	Type  dtype.Type // of the linear weights: a block type
	Model dtype.Type // of all others; Invalid is F32
	// Double quantizes the scales of 4-bit types again.
	Double bool
	// Head is the module that makes the logits, which stays as it is. So do the modules
	// of Skip.
	Head string
	Skip []string
}

// Weight is a weight to be quantized while it is written. Its numbers are pulled once and
// never held all at once: what is made of the scales is written after the codes.
type Weight struct {
	Name  string // of the weight: a module's and ".weight"
	Shape shape.Shape
	From  quant.ReadFunc
}

// Outputs are the tensors of the weight. They belong into one file.
func (w Weight) Outputs(o Options) ([]tensorfile.Output, error) {
	l, err := layoutOf(o.Type)
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.Name, err)
	}
	return l.outputs(w, o)
}

// weightSuffix ends the names of weights; a module's name is the rest.
const weightSuffix = ".weight"

// Collect makes weights of all tensors of a folder, in file order. Parts without their
// weight, and weights without their parts, are errors.
func Collect(tensors []tensorfile.Tensor) ([]Tensor, error) {
	c := collector{byName: map[string]tensorfile.Tensor{}, used: map[string]bool{}}
	for _, t := range tensors {
		c.byName[t.Name] = t
	}
	found := map[string]Tensor{}
	for _, t := range tensors {
		c.parts = nil
		w, err := c.quantized(t)
		if err != nil {
			return nil, fmt.Errorf("the quantized weight of %s in %s: %w", t.Name, t.Path, err)
		}
		if _, twice := found[w.Name]; twice {
			return nil, fmt.Errorf("the quantized weight %s in %s has two descriptions", w.Name, t.Path)
		}
		if w.Name != "" {
			w.Parts = c.parts
			found[w.Name] = w
		}
	}
	var all []Tensor
	for _, t := range tensors {
		if w, ok := found[t.Name]; ok {
			all = append(all, w)
		} else if !c.used[t.Name] {
			all = append(all, Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape, Parts: []tensorfile.Tensor{t}, data: t})
		}
	}
	return all, nil
}

// collector knows all tensors of a folder and which are parts of others.
type collector struct {
	byName map[string]tensorfile.Tensor
	used   map[string]bool
	parts  []tensorfile.Tensor // taken for the weight at hand
}

// quantized makes the weight that a tensor describes; its Name is "" where the tensor
// describes none.
func (c *collector) quantized(t tensorfile.Tensor) (Tensor, error) {
	if t.Type.Block() {
		return c.blocks(t)
	}
	for _, l := range layouts {
		if w, err := l.collect(c, t); err != nil || w.Name != "" {
			return w, err
		}
	}
	return Tensor{}, nil
}

// take finds a part.
func (c *collector) take(name string) (tensorfile.Tensor, error) {
	t, ok := c.byName[name]
	if !ok {
		return t, fmt.Errorf("there is no tensor %s", name)
	}
	c.mark(t)
	return t, nil
}

// mark records that a tensor is a part of the weight at hand.
func (c *collector) mark(t tensorfile.Tensor) {
	c.used[t.Name] = true
	c.parts = append(c.parts, t)
}

// f32 reads a part that has so many f32; -1 is any number.
func (c *collector) f32(name string, n int64) ([]float32, error) {
	t, err := c.take(name)
	if err != nil {
		return nil, err
	}
	have := t.Shape.Elements()
	switch {
	case n >= 0 && have != n:
		return nil, fmt.Errorf("tensor %s has %d numbers, want %d", name, have, n)
	case t.Type != dtype.F32:
		return nil, fmt.Errorf("tensor %s is %v, want f32", t.Name, t.Type)
	}
	out := make([]float32, have)
	return out, t.ReadF32(out, 0)
}
