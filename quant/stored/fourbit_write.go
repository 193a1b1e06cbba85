package stored

import (
	"io"
	"sync"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// fourBit are the tensors of the weight in blocks of 64.
func (w Weight) fourBit(o Options) ([]tensorfile.Output, error) {
	n := w.Shape.Elements()
	blocks := (n + quant.FourBitBlock - 1) / quant.FourBitBlock
	c := &fourBitWriter{weight: w, code: quant.FourBitOf(o.Type), state: quantState{Kind: o.Type.String(), Block: quant.FourBitBlock, Type: o.Model.Torch(), Shape: w.Shape}}
	outputs := []tensorfile.Output{
		{Name: w.Name, Type: dtype.U8, Shape: shape.Shape{(n + 1) / 2, 1}, Write: c.writeCodes},
		fixed(w.Name+mapSuffix, dtype.F32, quant.F32Bytes(c.code.Values[:])),
	}
	if o.Double {
		outputs = append(outputs, c.nestedScales(blocks)...)
	} else {
		outputs = append(outputs, tensorfile.Output{Name: w.Name + absmaxSuffix, Type: dtype.F32, Shape: shape.Shape{blocks}, Write: c.writeScales},
			fixed(w.Name+stateInfix+c.state.Kind, dtype.U8, c.state.encode()))
	}
	for i := range outputs[1:] {
		outputs[1+i].After = w.Name
	}
	return outputs, nil
}

// nestedScales are the tensors of scales that are quantized again.
func (c *fourBitWriter) nestedScales(blocks int64) []tensorfile.Output {
	c.state.Group, c.state.GroupType, c.state.Offset = quant.FourBitGroup, dtype.F32.Torch(), new(float64)
	name, groups := c.weight.Name, (blocks+quant.FourBitGroup-1)/quant.FourBitGroup
	return []tensorfile.Output{
		fixed(name+nestedMapSuffix, dtype.F32, quant.F32Bytes(quant.Signed.Values[:])),
		{Name: name + absmaxSuffix, Type: dtype.U8, Shape: shape.Shape{blocks}, Write: c.scalePart(func(s quant.Scales) []byte { return s.Codes })},
		{Name: name + nestedAbsmaxSuffix, Type: dtype.F32, Shape: shape.Shape{groups}, Write: c.scalePart(func(s quant.Scales) []byte { return s.Groups })},
		{Name: name + stateInfix + c.state.Kind, Type: dtype.U8, Shape: shape.Of(len(c.state.encode())), Write: c.scalePart(c.describe)},
	}
}

// fourBitWriter is a 4-bit weight whose codes are written before its scales.
type fourBitWriter struct {
	weight Weight
	code   *quant.FourBit
	state  quantState

	mu     sync.Mutex
	absmax []float32
	scales *quant.Scales // made of absmax for the first tensor, dropped after the last
	left   int           // tensors of scales to write
}

// scaleTensors is how many tensors are made of quantized scales.
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

// scalePart writes one of the tensors that are made of the scales.
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
	d.Offset = new(float64(s.Offset))
	return d.encode()
}

// fixed is a tensor of bytes that are known already.
func fixed(name string, t dtype.Type, b []byte) tensorfile.Output {
	return tensorfile.Output{Name: name, Type: t, Shape: shape.Of(len(b) / int(t.Bytes(1))), Write: func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}
