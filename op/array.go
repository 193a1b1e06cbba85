package op

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/quant"
)

// Array is an operand as plain numbers on the host, for references and tests:
// real numbers in F whatever their element type, 32-bit integers in I. Of a block type
// Packed holds the bytes: they tell more than the numbers, which can have several
// codes, and are those of F once Round has seen to it.
type Array struct {
	Type   Type
	F      []float64
	I      []int32
	Packed []byte
}

// NewArray makes an array of zeros.
func NewArray(t Type) Array {
	if t.DType == dtype.I32 {
		return Array{Type: t, I: make([]int32, t.Shape.Elements())}
	}
	a := Array{Type: t, F: make([]float64, t.Shape.Elements())}
	if t.DType.Block() {
		a.Packed = make([]byte, t.Bytes())
	}
	return a
}

// Clone copies the numbers.
func (a Array) Clone() Array {
	b := NewArray(a.Type)
	copy(b.F, a.F)
	copy(b.I, a.I)
	copy(b.Packed, a.Packed)
	return b
}

// Round makes every number one that its element type can hold.
func (a Array) Round() {
	if !a.Type.DType.Block() {
		for i, f := range a.F {
			a.F[i] = round(a.Type.DType, f)
		}
		return
	}
	if err := a.pack(); err != nil { // a number without a code: let every comparison show it
		for i := range a.F {
			a.F[i] = math.NaN()
		}
		return
	}
	a.unpack()
}

// pack codes the numbers, unless they are what the bytes hold already.
func (a Array) pack() error {
	held := a.Clone()
	held.unpack()
	if slices.Equal(held.F, a.F) {
		return nil
	}
	narrow := make([]float32, len(a.F))
	for i, f := range a.F {
		narrow[i] = float32(f)
	}
	return quant.Encode(a.Type.DType, a.Packed, narrow, int(a.Type.Shape.Last()))
}

// unpack makes the numbers what the bytes hold.
func (a Array) unpack() error {
	narrow := make([]float32, len(a.F))
	err := quant.Decode(a.Type.DType, narrow, a.Packed, int(a.Type.Shape.Last()))
	for i, f := range narrow {
		a.F[i] = float64(f)
	}
	return err
}

func round(t dtype.Type, f float64) float64 {
	switch t {
	case dtype.F32:
		return float64(float32(f))
	case dtype.F16:
		return float64(dtype.FromF16(dtype.ToF16(float32(f))))
	case dtype.BF16:
		return float64(dtype.FromBF16(dtype.ToBF16(float32(f))))
	}
	return f
}

// Encode is the array as the bytes a device holds, little endian.
func (a Array) Encode() ([]byte, error) {
	b := make([]byte, 0, a.Type.Bytes())
	switch a.Type.DType {
	case dtype.F64:
		for _, f := range a.F {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		}
	case dtype.F32:
		for _, f := range a.F {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		}
	case dtype.F16:
		for _, f := range a.F {
			b = binary.LittleEndian.AppendUint16(b, dtype.ToF16(float32(f)))
		}
	case dtype.BF16:
		for _, f := range a.F {
			b = binary.LittleEndian.AppendUint16(b, dtype.ToBF16(float32(f)))
		}
	case dtype.I32:
		for _, i := range a.I {
			b = binary.LittleEndian.AppendUint32(b, uint32(i))
		}
	default:
		if !a.Type.DType.Block() {
			return nil, fmt.Errorf("%v is not written as plain numbers", a.Type)
		}
		err := a.pack()
		return append(b, a.Packed...), err
	}
	return b, nil
}

// Decode reads what Encode wrote.
func Decode(t Type, b []byte) (Array, error) {
	a := NewArray(t)
	if int64(len(b)) != t.Bytes() {
		return a, fmt.Errorf("%d bytes for %v, want %d", len(b), t, t.Bytes())
	}
	switch t.DType {
	case dtype.F64:
		for i := range a.F {
			a.F[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case dtype.F32:
		for i := range a.F {
			a.F[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	case dtype.F16:
		for i := range a.F {
			a.F[i] = float64(dtype.FromF16(binary.LittleEndian.Uint16(b[2*i:])))
		}
	case dtype.BF16:
		for i := range a.F {
			a.F[i] = float64(dtype.FromBF16(binary.LittleEndian.Uint16(b[2*i:])))
		}
	case dtype.I32:
		for i := range a.I {
			a.I[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	default:
		if !t.DType.Block() {
			return a, fmt.Errorf("%v is not read as plain numbers", t)
		}
		copy(a.Packed, b)
		return a, a.unpack()
	}
	return a, nil
}
