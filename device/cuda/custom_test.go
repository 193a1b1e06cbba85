package cuda

import (
	"strings"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// A kernel as a program outside this module brings it: y = scale·x + 1. It is given the numbers of an iteration too.
const shiftKind op.Kind = "test_shift"

const shiftSource = `
extern "C" __global__ void shift(const Element *x, Element *y, i64 n, float scale, float rate, u64 key, u64 row) {
    i64 i = position();
    if (i < n) narrow(wide(x[i]) * scale + 1.0f, &y[i]);
}
`

func init() {
	op.Register(op.Op{
		Kind: shiftKind, Takes: 1, Scalars: []string{"unread", "rate"},
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in, nil },
		Reference: func(c op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = c.Attr.Scale*x + 1
			}
		},
		Cases: func(l *op.CaseList) {
			l.Add("3x37", shiftKind, op.Attr{Scale: 2}, l.X(3, 37))
		},
	})
	Register(shiftKind, shiftSource, func(c op.Call) Launch {
		n := c.Out[0].Shape.Elements()
		return Launch{"shift", (n + 255) / 256, 256, []Arg{Buffer(0), Buffer(1), Int(n), Float(c.Attr.Scale), Scalar(shiftKind, "rate"), Key(), Row()}}
	})
}

// What a program brings is compiled behind common.h like our own files, for every element
// type and for an older and a newer generation of GPUs.
func TestCustomKernelsCompile(t *testing.T) {
	c := compiler(t)
	for _, element := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, major := range []int{8, 9} {
			u := unit{file: string(shiftKind), text: shiftSource, element: element}
			if image, err := u.compile(c, major, 0); err != nil || !strings.HasPrefix(string(image), "\x7fELF") {
				t.Errorf("%v for sm_%d0: %d bytes, %v", element, major, len(image), err)
			}
		}
	}
	broken := unit{file: "broken", text: "extern \"C\" __global__ void f() { nonsense; }"}
	if _, err := broken.compile(c, 8, 0); err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "broken.cu") {
		t.Errorf("a broken kernel gives %v", err)
	}
}

// A call of such an op finds its kernel, launched as the program says.
func TestCustomKernelsLaunch(t *testing.T) {
	f := newFake()
	d, err := open(f.libraries(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	call, err := op.Make(shiftKind, op.Attr{Scale: 2}, op.Type{DType: dtype.BF16, Shape: shape.Of(3, 100)})
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Kernel(call)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	at := func(offset int64) device.Buffer {
		return device.Buffer{Memory: m, Offset: offset, Bytes: call.In[0].Bytes()}
	}
	l := &device.Launch{Buffers: []device.Buffer{at(2), at(1026)}, Args: &op.Args{Key: 11, Row: 12, Scalars: op.Scalars{3, 0.5}}}
	if err := q.Launch(k, l); err != nil { // at any element
		t.Fatal(err)
	}
	if f.last.Grid != [3]uint32{2, 1, 1} || f.last.Block != [3]uint32{256, 1, 1} {
		t.Errorf("launched on %v blocks of %v threads, want 2 of 256", f.last.Grid, f.last.Block)
	}
	if got := f.slots[:7]; got[1]-got[0] != 1024 || got[2] != 300 || got[3] != 0x40000000 || got[4] != 0x3f000000 || got[5] != 11 || got[6] != 12 {
		t.Errorf("parameters %v, want two addresses 1024 apart, 300, the bits of 2 and 0.5, 11 and 12", got)
	}
}
