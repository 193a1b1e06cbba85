package cpu

import (
	"math"
	"testing"

	"spillway/op"
)

// Each operation of formulas gives, over many elements, the bits that op.FormulaNode.Compute gives for one,
// also of zeros of both signs, of numbers below the normal range, of infinities and of NaN.
func TestArithmeticOfFormulas(t *testing.T) {
	tiny, inf := math.Float32frombits(3), float32(math.Inf(1))
	edges := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, 3e38, -3e38, tiny, -tiny, inf, -inf, float32(math.NaN())}
	var x, y, z []float32
	for i := range len(edges) * len(edges) * len(edges) {
		x, y, z = append(x, edges[i%len(edges)]), append(y, edges[i/len(edges)%len(edges)]), append(z, edges[i/len(edges)/len(edges)])
	}
	out := make([]float32, len(x))
	for _, flushes := range []bool{false, true} {
		k := &formulaKernel{flush: []bool{flushes}}
		for _, what := range []op.Arithmetic{op.NumAdd, op.NumSub, op.NumMul, op.NumDiv, op.NumFMA, op.NumSqrt, op.NumAbs, op.NumSign, op.NumMax, op.NumMin, op.NumWhere, op.NumAbove, op.NumEqual, op.NumStored} {
			n := &op.FormulaNode{Do: what}
			k.node(n, out, x, y, z)
			for i, got := range out {
				want := n.Compute(x[i], y[i], z[i], func(int) bool { return flushes })
				if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
					t.Errorf("%s of %v, %v, %v is %v, want %v", what, x[i], y[i], z[i], got, want)
					break
				}
			}
		}
	}
}
