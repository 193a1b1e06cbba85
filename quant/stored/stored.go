// Package stored reads and writes quantized weights the way other libraries keep them in
// safetensors files, which is how transformers saves a quantized model.
//
// A quantized weight is several tensors. In 4 bits, beside the codes under the weight's
// own name, they are
//
//	.absmax                               f32 per block, or its code where it is coded again
//	.quant_map                            the sixteen values
//	.nested_absmax, .nested_quant_map     of the codes of absmax, where there are any
//	.quant_state.bitsandbytes__nf4, __fp4 JSON: block size, shape and so on
//
// and in 8 bits the module's .SCB, the absmax of each row, and .weight_format. That is how
// bitsandbytes keeps them; the compressed-tensors library keeps floats of 8 bits beside
//
//	_scale                                of each row
//
// Collect finds what belongs together. Every number is decoded with the maps in the file,
// so it is the number those libraries compute, to the bit.
package stored

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
)

// Tensor is a weight of a folder: one tensor of its files, or several that are one
// quantized weight. It holds no numbers of its own.
type Tensor struct {
	Name string
	// Type is NF4, FP4, RowI8 or RowF8; otherwise that of the plain tensor.
	Type  dtype.Type
	Shape shape.Shape
	// Parts are the tensors of the files that it is made of.
	Parts []safetensors.Tensor

	data      safetensors.Tensor // codes, or the plain tensor
	fourBit   *fourBit           // of 4 bits
	rowScales []float32          // scales of rows of 8 bits
}

// Double says whether the scales of a weight of 4 bits are coded again.
func (t Tensor) DoubleQuantized() bool { return t.fourBit != nil && t.fourBit.nested }

// Path is the file the weight, or its codes, are in.
func (t Tensor) Path() string { return t.data.Path() }

// Parts of a weight's name in 4 bits, and of its module's in 8.
const (
	absmaxSuffix       = ".absmax"
	mapSuffix          = ".quant_map"
	nestedAbsmaxSuffix = ".nested_absmax"
	nestedMapSuffix    = ".nested_quant_map"
	stateInfix         = ".quant_state.bitsandbytes__"
	scbSuffix          = ".SCB"
	scaleSuffix        = "_scale"
	formatSuffix       = ".weight_format"
	weightSuffix       = ".weight"
)

// Collect makes weights of all tensors of a folder, in file order. Parts without their
// weight, and weights without their parts, are errors.
func Collect(tensors []safetensors.Tensor) ([]Tensor, error) {
	c := collector{byName: map[string]safetensors.Tensor{}, used: map[string]bool{}}
	for _, t := range tensors {
		c.byName[t.Name] = t
	}
	found := map[string]Tensor{}
	for _, t := range tensors {
		c.parts = nil
		w, err := c.quantized(t)
		if err != nil {
			return nil, fmt.Errorf("the quantized weight of %s in %s: %w", t.Name, t.Path(), err)
		}
		if _, twice := found[w.Name]; twice {
			return nil, fmt.Errorf("the quantized weight %s in %s has two descriptions", w.Name, t.Path())
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
			all = append(all, Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape, Parts: []safetensors.Tensor{t}, data: t})
		}
	}
	return all, nil
}

// collector knows all tensors of a folder and which are parts of others.
type collector struct {
	byName map[string]safetensors.Tensor
	used   map[string]bool
	parts  []safetensors.Tensor // taken for the weight at hand
}

// quantized makes the weight whose description a tensor is; none where it is none.
func (c *collector) quantized(t safetensors.Tensor) (Tensor, error) {
	if name, kind, ok := strings.Cut(t.Name, stateInfix); ok {
		return c.fourBit(name, kind, t)
	}
	if module, ok := strings.CutSuffix(t.Name, scbSuffix); ok {
		return c.int8Rows(module, t)
	}
	if name, ok := strings.CutSuffix(t.Name, weightSuffix+scaleSuffix); ok {
		return c.fp8Rows(name+weightSuffix, t)
	}
	return Tensor{}, nil
}

// take finds a part.
func (c *collector) take(name string) (safetensors.Tensor, error) {
	t, ok := c.byName[name]
	if !ok {
		return t, fmt.Errorf("there is no tensor %s", name)
	}
	c.mark(t)
	return t, nil
}

// mark notes that a tensor is a part of the weight at hand.
func (c *collector) mark(t safetensors.Tensor) {
	c.used[t.Name] = true
	c.parts = append(c.parts, t)
}

func (c *collector) int8Rows(module string, scales safetensors.Tensor) (Tensor, error) {
	main, err := c.take(module + weightSuffix)
	if err != nil {
		return Tensor{}, err
	}
	if main.Type != dtype.I8 || len(main.Shape) != 2 || scales.Type != dtype.F32 || scales.Shape.Elements() != main.Shape[0] {
		return Tensor{}, fmt.Errorf("it is %v%v beside %v%v, want i8 with an f32 for each row", main.Type, main.Shape, scales.Type, scales.Shape)
	}
	if err := c.checkFormat(module); err != nil {
		return Tensor{}, err
	}
	c.mark(scales)
	absmax, err := floats(scales)
	return Tensor{Name: main.Name, Type: quant.RowI8, Shape: main.Shape, data: main, rowScales: absmax}, err
}

// floatRows are 8-bit floats with a scale for each row, in any plain type.
func (c *collector) fp8Rows(name string, scales safetensors.Tensor) (Tensor, error) {
	main, err := c.take(name)
	if err != nil {
		return Tensor{}, err
	}
	if main.Type != dtype.F8E4M3 || len(main.Shape) != 2 || scales.Shape.Elements() != main.Shape[0] {
		return Tensor{}, fmt.Errorf("it is %v%v beside %v%v, want f8e4m3 with a scale for each row", main.Type, main.Shape, scales.Type, scales.Shape)
	}
	c.mark(scales)
	w := Tensor{Name: name, Type: quant.RowF8, Shape: main.Shape, data: main, rowScales: make([]float32, main.Shape[0])}
	return w, scales.ReadF32(w.rowScales, 0)
}

// checkFormat refuses the column formats of old versions; rows are 0, or not mentioned.
func (c *collector) checkFormat(module string) error {
	format, ok := c.byName[module+formatSuffix]
	if !ok {
		return nil
	}
	c.mark(format)
	var b [1]byte
	if format.Bytes != 1 {
		return fmt.Errorf("its weight_format has %d bytes, want 1", format.Bytes)
	}
	if _, err := format.ReadAt(b[:], 0); err != nil {
		return err
	}
	if b[0] != 0 {
		return fmt.Errorf("its weight_format is %d; only 0, by rows, is read: save it again with a recent bitsandbytes", b[0])
	}
	return nil
}

// floats reads a small f32 tensor.
func floats(t safetensors.Tensor) ([]float32, error) {
	if t.Type != dtype.F32 {
		return nil, fmt.Errorf("tensor %s is %v, want f32", t.Name, t.Type)
	}
	out := make([]float32, t.Shape.Elements())
	return out, t.ReadF32(out, 0)
}
