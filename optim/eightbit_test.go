package optim

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/safetensors"
)

// Steps of bitsandbytes' 8-bit Adam, AdamW and Lion, each from the state it had, made by
// tools/reference/quant.py. Weights agree to the rounding of f32. A state is a code
// apart where the two round to different sides of a middle, and where a number is too
// small for a code: theirs is then zero, ours the smallest there is.
func TestEightBitStatesFollowBitsandbytes(t *testing.T) {
	file, err := safetensors.Open(filepath.Join("..", "quant", "testdata", "optimizers.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, text := range map[string]string{
		"adamw": "adamw:lr=1e-2,beta2=0.99,weight_decay=0.1", "adam": "adam:eps=1e-6", "lion": "lion:lr=1e-3,weight_decay=0.1",
	} {
		config := parse(t, text)
		f := eightBit{t, file, name}
		for step := 1; step <= 4; step++ {
			f.step(config, step)
		}
	}
}

type eightBit struct {
	t    *testing.T
	file *safetensors.File
	name string
}

const eightBitElements = 700

// step makes one update from bitsandbytes' state before it and compares with the one
// after it.
func (f eightBit) step(c Config, step int) {
	f.t.Helper()
	kind, err := c.Kind()
	if err != nil {
		f.t.Fatal(err)
	}
	in := []op.Array{f.numbers(fmt.Sprintf("w%d", step-1)), f.numbers(fmt.Sprintf("g%d", step))}
	kinds := []dtype.Type{quant.Dyn8, quant.UDyn8}[:len(c.States())]
	for i, t := range kinds {
		in = append(in, f.state(t, i+1, step-1))
	}
	in = append(in, op.Array{Type: op.Type{DType: dtype.F32, Shape: []int64{2}}, F: []float64{1, 0}})
	types := make([]op.Type, len(in))
	for i, a := range in {
		types[i] = a.Type
	}
	call, err := op.Make(kind, op.Attr{}, types...)
	if err != nil {
		f.t.Fatal(err)
	}
	var args op.Args
	if args.Scalars, err = c.Scalars(step, c.LR, true); err != nil {
		f.t.Fatal(err)
	}
	out := []op.Array{in[0].Clone()}
	for i := range kinds {
		out = append(out, in[2+i].Clone())
	}
	if err := call.Reference(in, out, args); err != nil {
		f.t.Fatal(err)
	}
	for i, want := range f.numbers(fmt.Sprintf("w%d", step)).F {
		if d := math.Abs(out[0].F[i] - want); d > 3e-7*(1+math.Abs(want)) {
			f.t.Fatalf("%s: weight %d after step %d is %v, want %v", f.name, i, step, out[0].F[i], want)
		}
	}
	for i, t := range kinds {
		f.sameState(out[1+i], f.state(t, i+1, step), quant.DynamicOf(t).Zero())
	}
}

// sameState compares codes; zero is the one of 0.
func (f eightBit) sameState(got, want op.Array, zero byte) {
	f.t.Helper()
	got.Round()
	codes, wanted := got.Packed[len(got.Packed)-eightBitElements:], want.Packed[len(want.Packed)-eightBitElements:]
	apart := 0
	for i := range codes {
		distance := int(codes[i]) - int(wanted[i])
		switch {
		case distance == 0, wanted[i] == zero && distance*distance == 1 && got.F[i] != 0:
		case distance*distance == 1:
			apart++
		default:
			f.t.Fatalf("%s: state %d has code %d, want %d", f.name, i, codes[i], wanted[i])
		}
	}
	if apart > 2 {
		f.t.Errorf("%s: %d of %d codes are next to bitsandbytes'", f.name, apart, len(codes))
	}
}

func (f eightBit) numbers(name string) op.Array {
	f.t.Helper()
	x, ok := f.file.Tensor(f.name + "." + name)
	narrow := make([]float32, eightBitElements)
	if !ok {
		f.t.Fatalf("no tensor %s", name)
	}
	if err := x.ReadF32(narrow, 0); err != nil {
		f.t.Fatal(err)
	}
	a := op.NewArray(op.Type{DType: dtype.F32, Shape: x.Shape})
	for i, v := range narrow {
		a.F[i] = float64(v)
	}
	return a
}

// state is what bitsandbytes keeps after a step, as one tensor: absmax, then codes.
// Before the first step it is zero.
func (f eightBit) state(t dtype.Type, which, step int) op.Array {
	f.t.Helper()
	typ := op.Type{DType: t, Shape: []int64{eightBitElements}}
	if step == 0 {
		return op.NewArray(typ)
	}
	var packed []byte
	for _, part := range []string{"absmax", "state"} {
		x, ok := f.file.Tensor(fmt.Sprintf("%s.%s%d.%d", f.name, part, which, step))
		if !ok {
			f.t.Fatalf("no %s after step %d", part, step)
		}
		b := make([]byte, x.Bytes)
		if _, err := x.ReadAt(b, 0); err != nil {
			f.t.Fatal(err)
		}
		packed = append(packed, b...)
	}
	a, err := op.Decode(typ, packed)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}
