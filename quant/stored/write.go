package stored

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
)

// Weight is a weight to be quantized while it is written. Its numbers are pulled twice,
// first to measure them and then to code them, and never held all at once.
type Weight struct {
	Name  string // of the weight: a module's and ".weight"
	Shape shape.Shape
	From  quant.Numbers
}

// FourBit gives the tensors of the weight as NF4 or FP4, in blocks of 64 with coded
// absmax, for a model whose other weights are of type model. They belong into one file.
func (w Weight) FourBit(kind, model dtype.Type) ([]safetensors.Source, error) {
	if kind != dtype.NF4 && kind != dtype.FP4 {
		return nil, fmt.Errorf("weight %s: %v is not a 4-bit type", w.Name, kind)
	}
	n := w.Shape.Elements()
	blocks := (n + dtype.BlockElements - 1) / dtype.BlockElements
	groups := (blocks + dtype.GroupBlocks - 1) / dtype.GroupBlocks
	c := &coding{weight: w, about: description{
		Kind: kind.String(), Block: dtype.BlockElements, Type: model.Torch(), Shape: w.Shape,
		Group: dtype.GroupBlocks, GroupType: dtype.F32.Torch(), Offset: new(float64),
	}}
	code := quant.FourBitOf(kind)
	state := c.about.encode()
	return []safetensors.Source{
		{Name: w.Name, Type: dtype.U8, Shape: shape.Shape{(n + 1) / 2, 1}, Write: func(out io.Writer) error {
			_, err := io.Copy(out, quant.NewCodes(code, dtype.BlockElements, n, w.From))
			return err
		}},
		{Name: w.Name + absmaxPart, Type: dtype.U8, Shape: shape.Shape{blocks}, Write: c.put(func(s quant.Scales) []byte { return s.Codes })},
		{Name: w.Name + nestedAbsmaxPart, Type: dtype.F32, Shape: shape.Shape{groups}, Write: c.put(func(s quant.Scales) []byte { return s.Groups })},
		{Name: w.Name + statePart + kind.String(), Type: dtype.U8, Shape: shape.Shape{int64(len(state))}, Write: c.put(c.describe)},
		floatSource(w.Name+mapPart, code.Values[:]),
		floatSource(w.Name+nestedMapPart, quant.Signed.Values[:]),
	}, nil
}

// coding is a weight between its two passes.
type coding struct {
	weight Weight
	about  description

	mu     sync.Mutex
	scales *quant.Scales // once measured, until all its parts are written
	left   int           // parts to write
}

// scaleParts is how many tensors are made of the scales.
const scaleParts = 3

// put writes a part of the scales, measuring the weight before the first one and
// forgetting what was measured after the last.
func (c *coding) put(part func(quant.Scales) []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.scales == nil {
			absmax, err := quant.Absmax(dtype.BlockElements, c.weight.Shape.Elements(), c.weight.From)
			if err != nil {
				return err
			}
			s := quant.NewScales(absmax)
			c.scales, c.left = &s, scaleParts
		}
		_, err := w.Write(part(*c.scales))
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

// Rows gives the tensors of the weight, a matrix, in 8 bits by rows.
func (w Weight) Rows() ([]safetensors.Source, error) {
	module, ok := strings.CutSuffix(w.Name, weightPart)
	if !ok || len(w.Shape) != 2 {
		return nil, fmt.Errorf("weight %s%v: rows are coded of matrices named %s", w.Name, w.Shape, weightPart)
	}
	return []safetensors.Source{
		{Name: w.Name, Type: dtype.I8, Shape: w.Shape, Write: func(out io.Writer) error {
			return w.eachRow(func(codes []byte, _ float32) error {
				_, err := out.Write(codes)
				return err
			})
		}},
		{Name: module + rowsPart, Type: dtype.F32, Shape: shape.Shape{w.Shape[0]}, Write: func(out io.Writer) error {
			return w.eachRow(func(_ []byte, absmax float32) error {
				return binary.Write(out, binary.LittleEndian, math.Float32bits(absmax))
			})
		}},
		{Name: module + formatPart, Type: dtype.U8, Shape: shape.Shape{}, Write: func(out io.Writer) error {
			_, err := out.Write([]byte{0})
			return err
		}},
	}, nil
}

// eachRow codes one row after another.
func (w Weight) eachRow(do func(codes []byte, absmax float32) error) error {
	cols := w.Shape[1]
	src, codes, raw := make([]float32, cols), make([]int8, cols), make([]byte, cols)
	var absmax [1]float32
	for row := range w.Shape[0] {
		if err := w.From(row*cols, src); err != nil {
			return err
		}
		quant.Rows8(codes, absmax[:], src, int(cols))
		if a := float64(absmax[0]); math.IsNaN(a) || math.IsInf(a, 0) {
			return fmt.Errorf("row %d has a number that f16 cannot hold", row)
		}
		for i, c := range codes {
			raw[i] = byte(c)
		}
		if err := do(raw, absmax[0]); err != nil {
			return err
		}
	}
	return nil
}

func floatSource(name string, values []float32) safetensors.Source {
	return safetensors.Source{Name: name, Type: dtype.F32, Shape: shape.Of(len(values)), Write: func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, values)
	}}
}
