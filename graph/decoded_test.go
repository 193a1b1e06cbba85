package graph_test

import (
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/quant"
)

// A layer with weights in 12 bits becomes the one with weights in bf16, each decoded before the op that reads it, and computes the same
// bits: as it is, decoded, and fused.
func TestDecoded(t *testing.T) {
	all := func(op.Call) bool { return true }
	for _, bias := range []bool{false, true} {
		plain, packed := layer(t, 3, bias, dtype.BF16), layer(t, 3, bias, quant.CompressedBF16)
		if graph.Decoded(plain) != plain {
			t.Error("a program without such weights was changed")
		}
		before := kinds(packed)
		decoded := graph.Decoded(packed)
		fused := graph.Fuse(decoded, all)
		want, wantFused := run(t, plain), run(t, graph.Fuse(plain, all))
		for _, c := range []struct {
			name string
			p    *graph.Program
			like []op.Kind
			want map[string][]float64
		}{{"packed", packed, before, want}, {"decoded", decoded, kinds(plain), want}, {"fused", fused, kinds(graph.Fuse(plain, all)), wantFused}} {
			if err := c.p.Verify(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			computed := slices.DeleteFunc(kinds(c.p), func(k op.Kind) bool { return k == op.Dequantize })
			if !slices.Equal(computed, c.like) {
				t.Errorf("%s: it computes %v, want %v", c.name, computed, c.like)
			}
			for name, list := range run(t, c.p) {
				if !slices.Equal(list, c.want[name]) || len(list) == 0 {
					t.Errorf("%s: %s has other numbers than with weights in bf16", c.name, name)
				}
			}
		}
		if decodings := len(fused.Nodes) - len(kinds(graph.Fuse(plain, all))); decodings != 7 || !slices.Equal(kinds(packed), before) {
			t.Errorf("7 weights are decoded %d times, or the program itself was changed", decodings)
		}
		for _, n := range fused.Nodes {
			if n.Kind == op.MatMul && !n.Attr.Constant {
				t.Errorf("a matmul with a weight says %+v", n.Attr)
			}
		}
	}
}
