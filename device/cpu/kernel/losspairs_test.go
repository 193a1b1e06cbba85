package kernel

import (
	"slices"
	"testing"

	"spillway/dtype"
)

// roundedLoss is what a HalfLoss gives, of the same numbers in f32: its matmuls are computed in f32, and gradients of
// logits are rounded in between.
func roundedLoss(p *Pool, l *LinearCrossEntropy) (losses []float32, dx, dw []uint16) {
	h := l.Half
	x, w, gradX, gradW := make([]float32, l.N*l.D), make([]float32, l.V*l.D), make([]float32, l.N*l.D), make([]float32, l.V*l.D)
	dtype.BF16.Widen(x, h.X)
	dtype.BF16.Widen(w, h.W)
	dtype.BF16.Widen(gradW, h.DW)
	losses, dx, dw = make([]float32, l.N), make([]uint16, l.N*l.D), make([]uint16, l.V*l.D)
	run := func(g Gemm, a, b, c []float32) {
		g.A.Data, g.B.Data, g.C, g.Work = a, b, c, make([]float32, g.Workspace(p.Workers()))
		g.Run(p)
	}
	step := l.rowsAtATime()
	for i := 0; i < l.N; i += step {
		n := min(step, l.N-i)
		toLogits, toInputs, toWeights := l.gemms(n)
		logits := make([]float32, n*l.V)
		run(toLogits, x[i*l.D:], w, logits)
		rows := CrossEntropy{N: n, V: l.V, Logits: logits, Targets: l.Targets[i:], Ignore: l.Ignore, Losses: losses[i:], Slope: l.Slope, Grad: logits}
		rows.Compute(p)
		codes := make([]uint16, len(logits))
		dtype.BF16.Narrow(codes, logits)
		dtype.BF16.Widen(logits, codes)
		run(toInputs, logits, w, gradX[i*l.D:])
		toWeights.Accumulate = l.Accumulate || i > 0
		run(toWeights, logits, x[i*l.D:], gradW)
	}
	dtype.BF16.Narrow(dx, gradX)
	dtype.BF16.Narrow(dw, gradW)
	return losses, dx, dw
}

func TestLinearCrossEntropyInBF16(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		codes := func(n int) []uint16 {
			c := make([]uint16, n)
			dtype.BF16.Narrow(c, random(rng, n))
			return c
		}
		for _, s := range [][4]int{{1, 7, 3, 0}, {70, 130, 20, 0}, {130, 300, 17, 60}} {
			n, v, d := s[0], s[1], s[2]
			l := &LinearCrossEntropy{fewRows: s[3], N: n, V: v, D: d, Targets: make([]int32, n), Ignore: -100, Slope: 0.3, Losses: make([]float32, n),
				Half: &HalfLoss{X: codes(n * d), W: codes(v * d), DX: codes(n * d), DW: codes(v * d)}}
			for i := range l.Targets {
				l.Targets[i] = int32(i * 7 % v)
				if i%5 == 4 {
					l.Targets[i] = -100
				}
			}
			before := slices.Clone(l.Half.DW)
			for _, l.Accumulate = range []bool{false, true} {
				for _, pool := range []*Pool{one, three} {
					copy(l.Half.DW, before)
					losses, dx, dw := roundedLoss(three, l)
					l.Work = random(rng, l.Workspace(pool.Workers()))
					l.Compute(pool)
					if !slices.Equal(l.Losses, losses) || !slices.Equal(l.Half.DX, dx) || !slices.Equal(l.Half.DW, dw) {
						t.Fatalf("%d rows of %d, accumulate %v, %d workers: other bits than in f32; losses %v, dx %v, dw %v", n, v, l.Accumulate, pool.Workers(),
							slices.Equal(l.Losses, losses), slices.Equal(l.Half.DX, dx), slices.Equal(l.Half.DW, dw))
					}
				}
			}
		}
	})
}
