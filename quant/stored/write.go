package stored

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
)

// Weight is a weight to be quantized while it is written. Its numbers are pulled once and
// never held all at once: what is made of the scales is written after the codes.
type Weight struct {
	Name  string // of the weight: a module's and ".weight"
	Shape shape.Shape
	From  quant.Numbers
}

// Sources are the tensors of the weight in a type, for a model whose other weights are of
// the type model. They belong into one file. Double codes the scales of 4-bit types again.
func (w Weight) Sources(kind, model dtype.Type, double bool) ([]safetensors.Source, error) {
	switch kind {
	case dtype.NF4, dtype.FP4:
		return w.fourBit(kind, model, double), nil
	case dtype.RowI8, dtype.RowF8:
		return w.byRows(kind)
	}
	return nil, fmt.Errorf("weight %s: %v is not a type weights are stored in; use nf4, fp4, i8row or f8row", w.Name, kind)
}

// fourBit is the weight in blocks of 64.
func (w Weight) fourBit(kind, model dtype.Type, double bool) []safetensors.Source {
	n := w.Shape.Elements()
	blocks := (n + dtype.BlockElements - 1) / dtype.BlockElements
	c := &coding{weight: w, code: quant.FourBitOf(kind), about: description{Kind: kind.String(), Block: dtype.BlockElements, Type: model.Torch(), Shape: w.Shape}}
	sources := []safetensors.Source{
		{Name: w.Name, Type: dtype.U8, Shape: shape.Shape{(n + 1) / 2, 1}, Write: c.codes},
		floatSource(w.Name+mapPart, c.code.Values[:]),
	}
	if double {
		sources = append(sources, c.coded(blocks)...)
	} else {
		sources = append(sources, safetensors.Source{Name: w.Name + absmaxPart, Type: dtype.F32, Shape: shape.Shape{blocks}, Write: c.plainScales},
			byteSource(w.Name+statePart+kind.String(), c.about.encode()))
	}
	for i := range sources[1:] {
		sources[1+i].After = w.Name
	}
	return sources
}

// coded are the tensors of scales that are coded again.
func (c *coding) coded(blocks int64) []safetensors.Source {
	c.about.Group, c.about.GroupType, c.about.Offset = dtype.GroupBlocks, dtype.F32.Torch(), new(float64)
	name, groups := c.weight.Name, (blocks+dtype.GroupBlocks-1)/dtype.GroupBlocks
	return []safetensors.Source{
		floatSource(name+nestedMapPart, quant.Signed.Values[:]),
		{Name: name + absmaxPart, Type: dtype.U8, Shape: shape.Shape{blocks}, Write: c.part(func(s quant.Scales) []byte { return s.Codes })},
		{Name: name + nestedAbsmaxPart, Type: dtype.F32, Shape: shape.Shape{groups}, Write: c.part(func(s quant.Scales) []byte { return s.Groups })},
		{Name: name + statePart + c.about.Kind, Type: dtype.U8, Shape: shape.Of(len(c.about.encode())), Write: c.part(c.describe)},
	}
}

// coding is a weight of 4 bits whose codes are written and whose scales are not.
type coding struct {
	weight Weight
	code   *quant.FourBit
	about  description

	mu     sync.Mutex
	absmax []float32
	scales *quant.Scales // made of absmax for the first part, kept until the last
	left   int           // parts of the scales to write
}

// scaleParts is how many tensors are made of coded scales.
const scaleParts = 3

func (c *coding) codes(w io.Writer) error {
	codes := quant.NewCodes(c.code, dtype.BlockElements, c.weight.Shape.Elements(), c.weight.From)
	_, err := io.Copy(w, codes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.absmax, c.left = codes.Absmax, scaleParts
	return err
}

func (c *coding) plainScales(w io.Writer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := w.Write(quant.Floats(c.absmax))
	c.absmax = nil
	return err
}

// part writes what is made of the scales, which are forgotten after the last part.
func (c *coding) part(make func(quant.Scales) []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.scales == nil {
			s := quant.NewScales(c.absmax)
			c.scales, c.absmax = &s, nil
		}
		_, err := w.Write(make(*c.scales))
		if c.left--; c.left == 0 {
			c.scales = nil
		}
		return err
	}
}

func (c *coding) describe(s quant.Scales) []byte {
	d := c.about
	offset := float64(s.Offset)
	d.Offset = &offset
	return d.encode()
}

// byRows is the weight, a matrix, in 8 bits by rows: whole numbers as bitsandbytes has
// them, floats as compressed-tensors has.
func (w Weight) byRows(kind dtype.Type) ([]safetensors.Source, error) {
	module, ok := strings.CutSuffix(w.Name, weightPart)
	if !ok || len(w.Shape) != 2 {
		return nil, fmt.Errorf("weight %s%v: rows are coded of matrices named %s", w.Name, w.Shape, weightPart)
	}
	var scales []float32
	codes := func(out io.Writer) error {
		c := quant.NewRowCodes(kind, w.Shape[0], w.Shape[1], w.From)
		_, err := io.Copy(out, c)
		scales = c.Scales
		return err
	}
	put := func(out io.Writer) error {
		_, err := out.Write(quant.Floats(scales))
		scales = nil
		return err
	}
	if kind == dtype.RowF8 {
		return []safetensors.Source{
			{Name: w.Name, Type: dtype.F8E4M3, Shape: w.Shape, Write: codes},
			{Name: w.Name + rowScalesPart, Type: dtype.F32, Shape: shape.Shape{w.Shape[0], 1}, Write: put, After: w.Name},
		}, nil
	}
	return []safetensors.Source{
		{Name: w.Name, Type: dtype.I8, Shape: w.Shape, Write: codes},
		{Name: module + rowsPart, Type: dtype.F32, Shape: shape.Shape{w.Shape[0]}, Write: put, After: w.Name},
		{Name: module + formatPart, Type: dtype.U8, Shape: shape.Shape{}, Write: byteSource("", []byte{0}).Write, After: w.Name},
	}, nil
}

func floatSource(name string, values []float32) safetensors.Source {
	return safetensors.Source{Name: name, Type: dtype.F32, Shape: shape.Of(len(values)), Write: func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, values)
	}}
}

func byteSource(name string, b []byte) safetensors.Source {
	return safetensors.Source{Name: name, Type: dtype.U8, Shape: shape.Of(len(b)), Write: func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}
