package kernel

import (
	"math"
	"testing"
)

// plainLoss is the cross entropy of x·wᵀ and its gradients in double precision.
func plainLoss(x, w []float32, targets []int32, d int, slope float64) (losses, dx, dw []float64) {
	n, v := len(targets), len(w)/d
	losses, dx, dw = make([]float64, n), make([]float64, n*d), make([]float64, v*d)
	for i, target := range targets {
		if target < 0 {
			continue
		}
		p, total := make([]float64, v), 0.0
		for j := range v {
			for k := range d {
				p[j] += float64(x[i*d+k]) * float64(w[j*d+k])
			}
			p[j] = math.Exp(p[j])
			total += p[j]
		}
		losses[i] = math.Log(total) - math.Log(p[target])
		for j := range v {
			g := p[j] / total * slope
			if j == int(target) {
				g -= slope
			}
			for k := range d {
				dx[i*d+k] += g * float64(w[j*d+k])
				dw[j*d+k] += g * float64(x[i*d+k])
			}
		}
	}
	return losses, dx, dw
}

func TestLinearCrossEntropy(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, s := range [][4]int{{1, 7, 3, 0}, {70, 130, 20, 0}, {130, 300, 17, 60}} {
			n, v, d := s[0], s[1], s[2]
			l := &LinearCrossEntropy{
				fewRows: s[3],
				N:       n, V: v, D: d, X: random(rng, n*d), W: random(rng, v*d), Targets: make([]int32, n), Ignore: -100, Slope: 0.3,
				Losses: make([]float32, n), DX: random(rng, n*d), DW: random(rng, v*d),
			}
			for i := range l.Targets {
				l.Targets[i] = int32(i * 7 % v)
				if i%5 == 4 {
					l.Targets[i] = -100
				}
			}
			l.Work = make([]float32, l.Workspace(2))
			losses, dx, dw := plainLoss(l.X, l.W, l.Targets, d, 0.3)
			l.Compute(pool)
			closeTo(t, "losses", l.Losses, losses)
			closeTo(t, "dx", l.DX, dx)
			closeTo(t, "dw", l.DW, dw)

			l.Accumulate = true
			l.Compute(pool)
			for i := range dw {
				dw[i] *= 2
			}
			closeTo(t, "accumulated dw", l.DW, dw)

			clear(l.Losses)
			l.DX, l.DW = nil, nil
			l.Compute(pool)
			closeTo(t, "losses alone", l.Losses, losses)
		}
	})
}

func TestCrossEntropyLeavesLogits(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		const n, v = 3, chunk + 77
		c := &CrossEntropy{N: n, V: v, Logits: random(newRand(), n*v), Targets: []int32{5, -1, v - 1}, Ignore: -1, Losses: make([]float32, n), Work: make([]float32, CrossEntropyWorkspace(2))}
		before := append([]float32(nil), c.Logits...)
		c.Compute(pool)
		alone := append([]float32(nil), c.Losses...)
		c.Grad, c.Slope = make([]float32, n*v), 1
		c.Compute(pool)
		for i, l := range c.Losses {
			near(t, "loss", i, alone[i], float64(l))
			if total := Sum(c.Grad[i*v:][:v]); math.Abs(total) > 1e-4 { // a softmax less a one
				t.Errorf("gradient of row %d adds up to %v", i, total)
			}
		}
		for i, x := range c.Logits {
			if x != before[i] {
				t.Fatalf("logit %d changed", i)
			}
		}
	})
}
