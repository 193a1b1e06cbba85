package stored

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// What bitsandbytes stores for LLM.int8 next to the codes, under the module's name:
//
//	.SCB            the absmax of each row
//	.weight_format  0: the codes are in rows
const (
	scbSuffix    = ".SCB"
	formatSuffix = ".weight_format"
)

func init() {
	layouts = append(layouts, layout{
		types: []dtype.Type{quant.RowI8}, library: bitsandbytes, collect: collectInt8, outputs: Weight.int8,
		config: func(o Options) any {
			c := newBitsandbytes(o)
			c.Loaded8, c.Load8 = true, true
			return c
		},
	})
}

func collectInt8(c *collector, scales tensorfile.Tensor) (Tensor, error) {
	module, ok := strings.CutSuffix(scales.Name, scbSuffix)
	if !ok {
		return Tensor{}, nil
	}
	codes, err := c.take(module + weightSuffix)
	if err != nil {
		return Tensor{}, err
	}
	if codes.Type != dtype.I8 || len(codes.Shape) != 2 || scales.Type != dtype.F32 || scales.Shape.Elements() != codes.Shape[0] {
		return Tensor{}, fmt.Errorf("it is %v%v with scales %v%v, want i8 with an f32 for each row", codes.Type, codes.Shape, scales.Type, scales.Shape)
	}
	if err := c.checkFormat(module); err != nil {
		return Tensor{}, err
	}
	absmax, err := c.f32(scales.Name, -1)
	return (&rows{quant.RowI8, codes, absmax}).tensor(), err
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

func (w Weight) int8(Options) ([]tensorfile.Output, error) {
	module, codes, scales, err := w.rowOutputs(quant.RowI8)
	if err != nil {
		return nil, err
	}
	return []tensorfile.Output{
		{Name: w.Name, Type: dtype.I8, Shape: w.Shape, Write: codes},
		{Name: module + scbSuffix, Type: dtype.F32, Shape: shape.Shape{w.Shape[0]}, Write: scales, After: w.Name},
		{Name: module + formatSuffix, Type: dtype.U8, Shape: shape.Shape{}, Write: fixed("", dtype.U8, []byte{0}).Write, After: w.Name},
	}, nil
}
