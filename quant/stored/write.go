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
	From  quant.ReadFunc
}

// Sources are the tensors of the weight in a type, for a model whose other weights are of
// the type model. They belong into one file. Double codes the scales of 4-bit types again.
func (w Weight) Outputs(kind, model dtype.Type, double bool) ([]safetensors.Output, error) {
	switch kind {
	case quant.NF4, quant.FP4:
		return w.fourBit(kind, model, double), nil
	case quant.RowI8, quant.RowF8:
		return w.byRows(kind)
	}
	return nil, fmt.Errorf("weight %s: %v is not a type weights are stored in; use nf4, fp4, i8row or f8row", w.Name, kind)
}

// fourBit is the weight in blocks of 64.
func (w Weight) fourBit(kind, model dtype.Type, double bool) []safetensors.Output {
	n := w.Shape.Elements()
	blocks := (n + quant.FourBitBlock - 1) / quant.FourBitBlock
	c := &fourBitWriter{weight: w, code: quant.FourBitOf(kind), state: quantState{Kind: kind.String(), Block: quant.FourBitBlock, Type: model.Torch(), Shape: w.Shape}}
	sources := []safetensors.Output{
		{Name: w.Name, Type: dtype.U8, Shape: shape.Shape{(n + 1) / 2, 1}, Write: c.writeCodes},
		f32Output(w.Name+mapSuffix, c.code.Values[:]),
	}
	if double {
		sources = append(sources, c.nestedScales(blocks)...)
	} else {
		sources = append(sources, safetensors.Output{Name: w.Name + absmaxSuffix, Type: dtype.F32, Shape: shape.Shape{blocks}, Write: c.writeScales},
			byteOutput(w.Name+stateInfix+kind.String(), c.state.encode()))
	}
	for i := range sources[1:] {
		sources[1+i].After = w.Name
	}
	return sources
}

// coded are the tensors of scales that are coded again.
func (c *fourBitWriter) nestedScales(blocks int64) []safetensors.Output {
	c.state.Group, c.state.GroupType, c.state.Offset = quant.FourBitGroup, dtype.F32.Torch(), new(float64)
	name, groups := c.weight.Name, (blocks+quant.FourBitGroup-1)/quant.FourBitGroup
	return []safetensors.Output{
		f32Output(name+nestedMapSuffix, quant.Signed.Values[:]),
		{Name: name + absmaxSuffix, Type: dtype.U8, Shape: shape.Shape{blocks}, Write: c.scalePart(func(s quant.Scales) []byte { return s.Codes })},
		{Name: name + nestedAbsmaxSuffix, Type: dtype.F32, Shape: shape.Shape{groups}, Write: c.scalePart(func(s quant.Scales) []byte { return s.Groups })},
		{Name: name + stateInfix + c.state.Kind, Type: dtype.U8, Shape: shape.Of(len(c.state.encode())), Write: c.scalePart(c.describe)},
	}
}

// coding is a weight of 4 bits whose codes are written and whose scales are not.
type fourBitWriter struct {
	weight Weight
	code   *quant.FourBit
	state  quantState

	mu     sync.Mutex
	absmax []float32
	scales *quant.Scales // made of absmax for the first part, kept until the last
	left   int           // parts of the scales to write
}

// scaleParts is how many tensors are made of coded scales.
const scaleTensors = 3

func (c *fourBitWriter) writeCodes(w io.Writer) error {
	codes := quant.NewCodes(c.code, quant.FourBitBlock, c.weight.Shape.Elements(), c.weight.From)
	_, err := io.Copy(w, codes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.absmax, c.left = codes.Absmax, scaleTensors
	return err
}

func (c *fourBitWriter) writeScales(w io.Writer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := w.Write(quant.F32Bytes(c.absmax))
	c.absmax = nil
	return err
}

// part writes what is made of the scales, which are forgotten after the last part.
func (c *fourBitWriter) scalePart(make func(quant.Scales) []byte) func(io.Writer) error {
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

func (c *fourBitWriter) describe(s quant.Scales) []byte {
	d := c.state
	offset := float64(s.Offset)
	d.Offset = &offset
	return d.encode()
}

// byRows is the weight, a matrix, in 8 bits by rows: whole numbers as bitsandbytes has
// them, floats as compressed-tensors has.
func (w Weight) byRows(kind dtype.Type) ([]safetensors.Output, error) {
	module, ok := strings.CutSuffix(w.Name, weightSuffix)
	if !ok || len(w.Shape) != 2 {
		return nil, fmt.Errorf("weight %s%v: rows are coded of matrices named %s", w.Name, w.Shape, weightSuffix)
	}
	var scales []float32
	codes := func(out io.Writer) error {
		c := quant.NewRowCodes(kind, w.Shape[0], w.Shape[1], w.From)
		_, err := io.Copy(out, c)
		scales = c.Scales
		return err
	}
	put := func(out io.Writer) error {
		_, err := out.Write(quant.F32Bytes(scales))
		scales = nil
		return err
	}
	if kind == quant.RowF8 {
		return []safetensors.Output{
			{Name: w.Name, Type: dtype.F8E4M3, Shape: w.Shape, Write: codes},
			{Name: w.Name + scaleSuffix, Type: dtype.F32, Shape: shape.Shape{w.Shape[0], 1}, Write: put, After: w.Name},
		}, nil
	}
	return []safetensors.Output{
		{Name: w.Name, Type: dtype.I8, Shape: w.Shape, Write: codes},
		{Name: module + scbSuffix, Type: dtype.F32, Shape: shape.Shape{w.Shape[0]}, Write: put, After: w.Name},
		{Name: module + formatSuffix, Type: dtype.U8, Shape: shape.Shape{}, Write: byteOutput("", []byte{0}).Write, After: w.Name},
	}, nil
}

func f32Output(name string, values []float32) safetensors.Output {
	return safetensors.Output{Name: name, Type: dtype.F32, Shape: shape.Of(len(values)), Write: func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, values)
	}}
}

func byteOutput(name string, b []byte) safetensors.Output {
	return safetensors.Output{Name: name, Type: dtype.U8, Shape: shape.Of(len(b)), Write: func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}
