package cpu

import (
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/shape"
)

// The copy of an updated weight is that weight, rounded, element by element: in small
// updates, in those so large that the copy is written past the caches, and in those that a
// factor of zero leaves out; wherever it begins.
func TestCopiesAreTheWeights(t *testing.T) {
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	defer q.Close()
	for _, n := range []int64{1000, uncachedElements + 77} {
		for _, to := range []dtype.Type{dtype.BF16, dtype.F16} {
			for _, clip := range []float32{1, 0} {
				for _, offset := range []int64{0, 2, 30} {
					copied := adamCopy(t, d, q, n, to, clip, offset)
					w := view[float32](copied.Buffers[0])
					for i, got := range view[uint16](copied.Buffers[len(copied.Buffers)-1]) {
						if want := rounding[to](w[i]); got != want {
							t.Fatalf("%d elements, %v at %d, clipped to %v: element %d is %#x, the weight %v is %#x", n, to, offset, clip, i, got, w[i], want)
						}
					}
					if changed := w[0] != 1; changed != (clip > 0) {
						t.Errorf("clipped to %v: the first weight, 1, became %v", clip, w[0])
					}
					must(t, copied.Buffers[0].Memory.Free())
				}
			}
		}
	}
}

// rounding is of one number.
var rounding = map[dtype.Type]func(float32) uint16{dtype.BF16: dtype.ToBF16, dtype.F16: dtype.ToF16}

// adamCopy updates n weights from 1 on by gradients in bf16, with a copy at an offset.
func adamCopy(t *testing.T, d *Device, q device.Queue, n int64, to dtype.Type, clip float32, offset int64) *device.Launch {
	t.Helper()
	full := op.Type{DType: dtype.F32, Shape: shape.Shape{n}}
	call, err := op.Make(optim.Adam, op.Attr{To: to}, full, op.Type{DType: dtype.BF16, Shape: full.Shape}, full, full, op.Type{DType: dtype.F32, Shape: shape.Of(2)})
	must(t, err)
	k, err := d.Kernel(call)
	must(t, err)
	l := &device.Launch{Args: &op.Args{Scalars: optim.AdamStep{Rate: 1e-2, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()}}
	at := int64(0)
	place := func(bytes int64) {
		l.Buffers = append(l.Buffers, device.Buffer{Offset: at, Bytes: bytes})
		at += up(bytes)
	}
	for _, typ := range call.In {
		place(typ.Bytes())
	}
	l.Buffers = append(l.Buffers, l.Buffers[0], l.Buffers[2], l.Buffers[3])
	at += offset
	place(to.Bytes(n))
	m, err := d.Alloc(at)
	must(t, err)
	for i := range l.Buffers {
		l.Buffers[i].Memory = m
	}
	w, g := view[float32](l.Buffers[0]), view[uint16](l.Buffers[1])
	for i := range w {
		w[i], g[i] = 1+float32(i%1000)/7, dtype.ToBF16(float32(i%13)-5.5)
	}
	view[float32](l.Buffers[4])[0] = clip
	must(t, q.Launch(k, l))
	must(t, q.Sync())
	return l
}
