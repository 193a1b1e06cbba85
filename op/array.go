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
	return quant.Encode(a.Type.DType, a.Packed, a.narrow(), int(a.Type.Shape.Last()))
}

// unpack makes the numbers what the bytes hold.
func (a Array) unpack() error {
	narrow := make([]float32, len(a.F))
	err := quant.Decode(a.Type.DType, narrow, a.Packed, int(a.Type.Shape.Last()))
	a.widen(narrow)
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
func (a Array) Encode() (b []byte, err error) {
	b = make([]byte, a.Type.Bytes())
	switch t := a.Type.DType; {
	case t.Block():
		err = a.pack()
		copy(b, a.Packed)
	case t.IsPlain():
		t.Encode(b, a.narrow())
	case t == dtype.F64:
		_, err = binary.Encode(b, binary.LittleEndian, a.F)
	case t == dtype.I32:
		_, err = binary.Encode(b, binary.LittleEndian, a.I)
	default:
		err = fmt.Errorf("%v is not written as plain numbers", a.Type)
	}
	return b, err
}

// Decode reads what Encode wrote.
func Decode(t Type, b []byte) (a Array, err error) {
	a = NewArray(t)
	if int64(len(b)) != t.Bytes() {
		return a, fmt.Errorf("%d bytes for %v, want %d", len(b), t, t.Bytes())
	}
	switch d := t.DType; {
	case d.Block():
		copy(a.Packed, b)
		err = a.unpack()
	case d.IsPlain():
		narrow := make([]float32, len(a.F))
		d.Decode(narrow, b)
		a.widen(narrow)
	case d == dtype.F64:
		_, err = binary.Decode(b, binary.LittleEndian, a.F)
	case d == dtype.I32:
		_, err = binary.Decode(b, binary.LittleEndian, a.I)
	default:
		err = fmt.Errorf("%v is not read as plain numbers", t)
	}
	return a, err
}

// narrow is the numbers in float32.
func (a Array) narrow() []float32 {
	list := make([]float32, len(a.F))
	for i, f := range a.F {
		list[i] = float32(f)
	}
	return list
}

func (a Array) widen(narrow []float32) {
	for i, f := range narrow {
		a.F[i] = float64(f)
	}
}
