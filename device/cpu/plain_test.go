package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// The update kernels give, on every path, the bits of the plain step in package optim:
// for all its examples, with states in f32 and bf16, on numbers of all sizes.
func TestUpdatesHaveTheBitsOfThePlainStep(t *testing.T) {
	d := Open(Options{Threads: 2})
	defer d.Close()
	defer kernel.Choose(kernel.Name())
	updates := map[op.Kind]bool{}
	for _, name := range optim.Names() {
		c, err := optim.Parse(name)
		must(t, err)
		kind, err := c.Kind()
		must(t, err)
		if !kind.WholeParam() {
			updates[kind] = true
		}
	}
	tried := map[op.Kind]int{}
	for _, c := range op.Cases(dtype.F32) {
		if !updates[c.Call.Kind] || c.Call.Attr.To != dtype.Invalid || roundsSpecially(c.Call) {
			continue
		}
		tried[c.Call.Kind]++
		in := c.Operands()
		hostile(in[:len(in)-1], rand.New(rand.NewPCG(1, 2)))
		want := c.Outputs(in)
		if err := c.Call.Reference(in, want, c.Args); err != nil {
			t.Fatal(err)
		}
		for _, path := range kernel.Paths() {
			_, err := kernel.Choose(path)
			must(t, err)
			t.Run(fmt.Sprintf("%s on %s", c.Name, path), func(t *testing.T) { samePlain(t, d, c, in, want) })
		}
	}
	for kind := range updates {
		if tried[kind] == 0 {
			t.Errorf("no case of %s was tried", kind)
		}
	}
}

// roundsSpecially says that a state has a type with a rounding of its own, see op.State.
func roundsSpecially(c op.Call) bool {
	for _, t := range c.In {
		if t.DType.Block() || t.DType == dtype.F16 {
			return true
		}
	}
	return false
}

// hostile puts zeros of both signs, denormals, the largest numbers, infinities and NaN
// between the numbers.
func hostile(in []op.Array, r *rand.Rand) {
	edges := []float64{0, math.Copysign(0, -1), 0x1p-149, -0x1p-130, 0x1p-126, 1e-30, math.MaxFloat32, -math.MaxFloat32, math.Inf(1), math.Inf(-1), math.NaN()}
	for _, a := range in {
		for i := range a.F {
			if r.IntN(4) == 0 {
				a.F[i] = edges[r.IntN(len(edges))]
			}
		}
		a.Round()
	}
}

// samePlain runs a case and compares bits; any NaN is as good as another.
func samePlain(t *testing.T, d *Device, c op.Case, in, want []op.Array) {
	t.Helper()
	k, err := d.Kernel(c.Call)
	if err != nil {
		t.Fatal(err)
	}
	l, free := placed(t, d, c, in)
	defer free()
	q := openQueue(t, d)
	must(t, q.Launch(k, l))
	must(t, q.Sync())
	for i, w := range want {
		got, err := op.Decode(w.Type, l.Buffers[len(in)+i].Host())
		if err != nil {
			t.Fatal(err)
		}
		w.Round()
		for n := range w.F {
			if a, b := got.F[n], w.F[n]; math.Float64bits(a) != math.Float64bits(b) && !(math.IsNaN(a) && math.IsNaN(b)) {
				t.Fatalf("output %d, element %d is %x, the plain step gives %x", i, n, a, b)
			}
		}
	}
}

// placed puts the operands of a case on the device; outputs that are updated in place are
// the operands themselves.
func placed(t *testing.T, d *Device, c op.Case, in []op.Array) (*device.Launch, func()) {
	t.Helper()
	l := &device.Launch{Args: &c.Args}
	var memories []device.Memory
	for _, a := range in {
		raw, err := a.Encode()
		must(t, err)
		m, err := d.Alloc(int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		copy(m.Host(), raw)
		memories = append(memories, m)
		l.Buffers = append(l.Buffers, device.Buffer{Memory: m, Bytes: int64(len(raw))})
	}
	for _, operand := range c.Call.InPlace() {
		l.Buffers = append(l.Buffers, l.Buffers[operand])
	}
	return l, func() {
		for _, m := range memories {
			must(t, m.Free())
		}
	}
}
