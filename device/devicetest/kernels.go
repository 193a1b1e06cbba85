package devicetest

import (
	"bytes"
	"fmt"
	"slices"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/quant"
)

// Limit is how far numbers may be from the reference: Max bounds the largest
// difference over the largest right number, NMSE the summed squared difference
// over the summed squared right numbers.
type Limit struct{ Max, NMSE float64 }

// Bound is what a careful kernel stays within: sums in at least f32, results
// rounded once to their type, intermediate results at most to the case's type.
func Bound(c op.Case, output int) Limit {
	out := c.Call.Out[output].DType
	limit := typeBound(out)
	if c.Call.Kind == op.Dequantize && c.Call.In[0].DType == quant.CompressedBF16 && out == dtype.BF16 {
		return Limit{} // every bit comes back
	}
	if out == dtype.F64 {
		return limit // sums of squares are exact to f64
	}
	if out.Block() {
		return limit // half a gap between codes is far above any rounding
	}
	for _, t := range c.Call.In {
		if t.DType.Float() && !t.DType.Block() { // codes stand for exact numbers
			limit = Limit{max(limit.Max, typeBound(t.DType).Max), max(limit.NMSE, typeBound(t.DType).NMSE)}
		}
	}
	return limit
}

// typeBound allows eight times the rounding of 16-bit types for Max and four times
// its root mean square; for f32 fifty times, since sums and exponentials are of
// the same precision.
func typeBound(d dtype.Type) Limit {
	switch d {
	case dtype.F64:
		return Limit{1e-12, 1e-24}
	case dtype.F32:
		return Limit{3e-6, 1e-12}
	case dtype.F16:
		return Limit{4e-3, 1.3e-6}
	case dtype.BF16:
		return Limit{1.6e-2, 2e-5}
	case quant.Dyn8: // half of 0.9/64, the widest gap between its values
		return Limit{7.1e-3, 1e-4}
	case quant.UDyn8:
		return Limit{3.6e-3, 3e-5}
	}
	return Limit{}
}

// guard is how many bytes around each buffer must stay as they are.
const guard = 64

// Case runs one case of an op on a device and compares it with the op's reference, within
// Bound: a program that brings an op tests its kernels with it.
func Case(d device.Device, c op.Case) error { return tryCase(d, c, Bound) }

// tryCase runs a case twice and compares with the reference, between the runs,
// and everything besides the outputs with what was there.
func tryCase(d device.Device, c op.Case, bound func(op.Case, int) Limit) error {
	kernel, err := d.Kernel(c.Call)
	if err != nil {
		return err
	}
	in := c.Operands()
	want := c.Outputs(in)
	l, err := layOut(d.Info().Alignment, c, in, want, kernel.Workspace())
	if err != nil {
		return err
	}
	if err := c.Call.Reference(in, want, c.Args); err != nil {
		return err
	}
	return try(d, len(l.image), func(r *rig) {
		first := l.launch(r, kernel, c.Args, 0xff)
		second := l.launch(r, kernel, c.Args, 0)
		for i, t := range c.Call.Out {
			at := l.outputs[i]
			got, err := op.Decode(t, first[at.offset:at.offset+at.bytes])
			r.must(err)
			if t.DType == dtype.I32 && !slices.Equal(got.I, want[i].I) {
				r.fail("output %d of %v is %v, the reference is %v", i, c.Call, got.I, want[i].I)
			}
			limit := bound(c, i)
			if t.DType.Block() && limit == (Limit{}) { // a codec of which no bound is known: its own codes
				want[i].Round()
			}
			distance := numtest.Compare(got.F, want[i].F)
			if !(distance.Max <= limit.Max && distance.NMSE <= limit.NMSE) {
				r.fail("output %d of %v is %v from the reference, may be max %.3g, nmse %.3g", i, c.Call, distance, limit.Max, limit.NMSE)
			}
			if !bytes.Equal(first[at.offset:at.offset+at.bytes], second[at.offset:at.offset+at.bytes]) {
				r.fail("output %d of %v differs between two launches with the same operands", i, c.Call)
			}
		}
		if l.overwrites(c.Call) {
			third := l.launch(r, kernel, c.Args, 0)
			for i, at := range l.outputs {
				was := l.apart[i]
				if !bytes.Equal(third[at.offset:at.offset+at.bytes], first[was.offset:was.offset+was.bytes]) {
					r.fail("output %d of %v differs where it lies on an operand", i, c.Call)
				}
			}
			l.outputs = l.apart
		}
		l.blank(first)
		l.blank(l.image)
		r.same("outside its outputs, "+c.Call.String(), first, l.image)
	})
}

// layout is the memory of one launch: all buffers with guards between them.
type layout struct {
	image     []byte // what the memory holds before
	operands  []place
	outputs   []place
	apart     []place // outputs before they were put on operands
	workspace place
}

// overwrites puts the outputs that may lie on operands there; false where there are none.
func (l *layout) overwrites(c op.Call) bool {
	list := c.Overwrites()
	l.apart = slices.Clone(l.outputs)
	for _, o := range list {
		l.outputs[o.Output] = l.operands[o.Operand]
	}
	return len(list) > 0
}

type place struct{ offset, bytes int }

func (p place) buffer(m device.Memory) device.Buffer { return part(m, p.offset, p.bytes) }

// layOut places operands, outputs and workspace and encodes what they hold.
func layOut(align int64, c op.Case, in, out []op.Array, workspace int64) (*layout, error) {
	l := &layout{image: pattern(guard, 0)}
	for i, a := range in {
		p, err := l.place(align, a)
		if err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
		l.operands = append(l.operands, p)
	}
	inPlace := c.Call.InPlace()
	for i, a := range out {
		if i < len(inPlace) {
			l.outputs = append(l.outputs, l.operands[inPlace[i]])
			continue
		}
		p, err := l.place(align, a)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		l.outputs = append(l.outputs, p)
	}
	l.workspace = l.put(align, make([]byte, workspace))
	return l, nil
}

func (l *layout) place(align int64, a op.Array) (place, error) {
	b, err := a.Encode()
	if err != nil {
		return place{}, err
	}
	return l.put(align, b), nil
}

// put appends bytes at the next offset that fits, and a guard.
func (l *layout) put(align int64, b []byte) place {
	for int64(len(l.image))%align != 0 {
		l.image = append(l.image, 0xa5)
	}
	p := place{len(l.image), len(b)}
	l.image = append(l.image, b...)
	l.image = append(l.image, pattern(guard, len(b))...)
	return p
}

// launch runs the kernel from the image, with scratch memory full of a byte, and
// returns what the memory holds then.
func (l *layout) launch(r *rig, k device.Kernel, args op.Args, scratch byte) []byte {
	for i := range l.workspace.bytes {
		l.image[l.workspace.offset+i] = scratch
	}
	r.upload(r.mem, l.image)
	r.must(r.q.Launch(k, l.on(r.mem, &args)))
	r.must(r.q.Sync())
	return r.download(r.mem, len(l.image))
}

// on is the launch with its buffers in a memory.
func (l *layout) on(m device.Memory, args *op.Args) *device.Launch {
	launch := &device.Launch{Workspace: l.workspace.buffer(m), Args: args}
	for _, p := range slices.Concat(l.operands, l.outputs) {
		launch.Buffers = append(launch.Buffers, p.buffer(m))
	}
	return launch
}

// blank overwrites what a launch may write.
func (l *layout) blank(image []byte) {
	for _, p := range append([]place{l.workspace}, l.outputs...) {
		for i := range p.bytes {
			image[p.offset+i] = 0
		}
	}
}
