package cpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
)

// Calls on 16-bit tensors that are computed in parts have the bits of the same calls on tensors that
// are widened as a whole.
func TestPartsHaveTheBitsOfTheWhole(t *testing.T) {
	d := Open(Options{Threads: 2})
	defer d.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, of := range []dtype.Type{dtype.BF16, dtype.F16} {
		x, w := op.Type{DType: of, Shape: []int64{2, 37, 523}}, op.Type{DType: of, Shape: []int64{523}}
		for _, c := range []struct {
			kind op.Kind
			attr op.Attr
			in   []op.Type
		}{
			{op.Add, op.Attr{}, []op.Type{x, x}},
			{op.Gated, op.Attr{Func: op.SiLU}, []op.Type{x, x}},
			{op.GatedGrad, op.Attr{Func: op.SiLU}, []op.Type{x, x, x}},
			{op.RMSNorm, op.Attr{Eps: 1e-5}, []op.Type{x, w}},
		} {
			call, err := op.Make(c.kind, c.attr, c.in...)
			must(t, err)
			inParts, reason := prepare(call, 2)
			if reason != "" {
				t.Fatal(reason)
			}
			whole, reason := widened(call, 2)
			if reason != "" {
				t.Fatal(reason)
			}
			if inParts.Workspace != 0 || whole.Workspace == 0 {
				t.Errorf("%v: workspaces of %d and %d bytes, want none in parts and some for the whole", call, inParts.Workspace, whole.Workspace)
			}
			t.Run(fmt.Sprintf("%v", call), func(t *testing.T) {
				in := make([][]byte, len(call.In))
				for i, x := range call.In {
					numbers, codes := make([]float32, x.Shape.Elements()), make([]uint16, x.Shape.Elements())
					for k := range numbers {
						numbers[k] = float32(rng.NormFloat64())
					}
					of.Narrow(codes, numbers)
					in[i], err = binary.Append(nil, binary.LittleEndian, codes)
					must(t, err)
				}
				a, b := outputs(t, d, call, inParts, in), outputs(t, d, call, whole, in)
				for i := range a {
					if !bytes.Equal(a[i], b[i]) {
						t.Errorf("output %d differs", i)
					}
				}
			})
		}
	}
}

// outputs runs a program and returns the bytes of its outputs.
func outputs(t *testing.T, d *Device, c op.Call, p Program, in [][]byte) (out [][]byte) {
	t.Helper()
	buffer := func(n int64) device.Buffer {
		m, err := d.Alloc(max(n, 64))
		must(t, err)
		t.Cleanup(func() { must(t, m.Free()) })
		return device.Buffer{Memory: m, Bytes: n}
	}
	l := &device.Launch{Workspace: buffer(p.Workspace)}
	for _, raw := range in {
		b := buffer(int64(len(raw)))
		copy(b.Host(), raw)
		l.Buffers = append(l.Buffers, b)
	}
	for _, t := range c.Out {
		l.Buffers = append(l.Buffers, buffer(t.Bytes()))
	}
	p.Run(d.pool, l)
	for _, b := range l.Buffers[len(in):] {
		out = append(out, bytes.Clone(b.Host()))
	}
	return out
}
