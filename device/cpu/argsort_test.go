package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/op"
)

// Orders and extremes of zeros of both signs, infinities and NaN are those of the reference.
func TestOrdersOfHostileNumbers(t *testing.T) {
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	for _, c := range op.Cases(dtype.F32) {
		if c.Call.Kind != op.ArgSort && c.Call.Kind != op.ScatterReduce {
			continue
		}
		in := c.Operands()
		hostile(in, rand.New(rand.NewPCG(3, 4)))
		want := c.Outputs(in)
		must(t, c.Call.Reference(in, want, c.Args))
		w := place(t, d, c)
		for i, a := range in {
			raw, err := a.Encode()
			must(t, err)
			copy(w.launch.Buffers[i].Host(), raw)
		}
		must(t, q.Launch(w.kernel, &w.launch))
		must(t, q.Sync())
		want[0].Round()
		got, err := op.Decode(want[0].Type, w.launch.Buffers[len(in)].Host())
		must(t, err)
		same := func(a, b float64) bool { // any NaN is as good as another
			return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
		}
		if !slices.Equal(got.I, want[0].I) || !slices.EqualFunc(got.F, want[0].F, same) {
			t.Errorf("%s: other bits than the reference", c.Name)
		}
		must(t, w.memory.Free())
	}
}
