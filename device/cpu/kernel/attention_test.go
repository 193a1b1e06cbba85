package kernel

import (
	"fmt"
	"math"
	"testing"

	"spillway/op"
)

// sees is the definition of what query i sees, spelled out.
func (a *Attention) sees(b, i, j int) bool {
	position := i + a.S - a.T
	switch {
	case a.Causal && j > position,
		a.Window > 0 && j <= position-a.Window,
		a.Segments != nil && a.Segments[b*a.S+position] != a.Segments[b*a.S+j],
		a.KeyMask != nil && a.KeyMask[b*a.S+j] == 0:
		return false
	}
	return true
}

// plain computes attention with all scores, in double precision: outputs, logs of the
// sums, and the gradients for a loss whose gradient by the outputs is do.
func (a *Attention) plain(do []float32) (o, lse, dq, dk, dv, dmask []float64) {
	dmask = make([]float64, len(a.Mask))
	o, dq = make([]float64, len(a.Q)), make([]float64, len(a.Q))
	dk, dv = make([]float64, len(a.K)), make([]float64, len(a.K))
	lse = make([]float64, a.B*a.Heads*a.T)
	for b := range a.B {
		for h := range a.Heads {
			for i := range a.T {
				a.plainQuery(b, h, i, do, o, lse, dq, dk, dv, dmask)
			}
		}
	}
	return o, lse, dq, dk, dv, dmask
}

func (a *Attention) plainQuery(b, h, i int, do []float32, o, lse, dq, dk, dv, dmask []float64) {
	q, own := queries{b: b, h: h}, b*a.MaskSample+h*a.MaskHead+i*a.S
	row := a.qAt(q, i)
	p, dp := make([]float64, a.S), make([]float64, a.S)
	total := 0.0
	for j := range a.S {
		if !a.sees(b, i, j) {
			continue
		}
		s := 0.0
		for d := range a.D {
			s += float64(a.Q[row+d]) * float64(a.K[a.kvAt(q, j)+d])
		}
		s *= float64(a.Scale)
		if a.Mask != nil {
			s += float64(a.Mask[own+j])
		}
		p[j] = math.Exp(s)
		total += p[j]
	}
	lse[(b*a.Heads+h)*a.T+i] = math.Log(total)
	if total == 0 {
		return
	}
	mean := 0.0
	factor := func(j int) float64 {
		switch at := uint64((b*a.Heads+h)*a.T + i); {
		case a.Dropout == nil:
			return 1
		case float64(op.NewStream(dropKey, dropStream).Line(dropFirst+at).Bits(uint32(j))) < dropChance*(1<<32):
			return 0
		}
		return 1 / (1 - dropChance)
	}
	for j := range a.S {
		p[j] /= total
		for d := range a.D {
			g, at := float64(do[row+d]), a.kvAt(q, j)+d
			o[row+d] += p[j] * factor(j) * float64(a.V[at])
			dp[j] += g * float64(a.V[at]) * factor(j)
			dv[at] += p[j] * factor(j) * g
		}
		mean += p[j] * dp[j]
	}
	for j := range a.S {
		ds := p[j] * (dp[j] - mean)
		if a.Mask != nil {
			dmask[own+j] += ds
		}
		ds *= float64(a.Scale)
		for d := range a.D {
			at := a.kvAt(q, j) + d
			dq[row+d] += ds * float64(a.K[at])
			dk[at] += ds * float64(a.Q[row+d])
		}
	}
}

type attentionCase struct {
	b, t, s, heads, kv, d, window         int
	causal, segments, keyMask, mask, drop bool
	bySample, byHead                      bool // of the mask
}

func (c attentionCase) make() *AttentionGrad {
	rng := newRand()
	g := &AttentionGrad{Attention: Attention{
		B: c.b, T: c.t, S: c.s, Heads: c.heads, KVHeads: c.kv, D: c.d,
		Scale: float32(1 / math.Sqrt(float64(c.d))), Causal: c.causal, Window: c.window,
		Q: random(rng, c.b*c.t*c.heads*c.d), K: random(rng, c.b*c.s*c.kv*c.d), V: random(rng, c.b*c.s*c.kv*c.d),
		O: random(rng, c.b*c.t*c.heads*c.d), LSE: random(rng, c.b*c.heads*c.t),
	}}
	g.DO = random(rng, len(g.Q))
	g.DQ, g.DK, g.DV = random(rng, len(g.Q)), random(rng, len(g.K)), random(rng, len(g.V))
	g.Work = make([]float32, g.Workspace(2))
	for i := range g.Work {
		g.Work[i] = float32(math.NaN()) // of other launches
	}
	if c.segments {
		g.Segments = make([]int32, c.b*c.s)
		for i := range g.Segments {
			g.Segments[i] = int32(i % c.s / 37)
		}
	}
	if c.keyMask {
		g.KeyMask = make([]int32, c.b*c.s)
		for i := range g.KeyMask {
			g.KeyMask[i] = int32(i % 3)
		}
	}
	if c.mask {
		samples, heads := 1, 1
		if c.byHead {
			heads, g.MaskHead = c.heads, c.t*c.s
		}
		if c.bySample {
			samples, g.MaskSample = c.b, heads*c.t*c.s
		}
		g.Mask = random(rng, samples*heads*c.t*c.s)
		for i := range g.Mask {
			if i%7 == 0 || i < c.s { // the first query sees nothing
				g.Mask[i] = float32(math.Inf(-1))
			}
		}
	}
	if c.drop {
		g.Dropout = NewWeightDropout(dropChance)
		g.Dropout.Start(op.NewStream(dropKey, dropStream), dropFirst)
	}
	return g
}

// What drops weights where a case has some dropped.
const dropKey, dropStream, dropFirst, dropChance = 3, 1, 1000, 0.5

func TestAttention(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		for _, c := range []attentionCase{
			{b: 1, t: 1, s: 1, heads: 1, kv: 1, d: 8},
			{b: 2, t: 5, s: 9, heads: 2, kv: 1, d: 16, causal: true},
			{b: 1, t: 130, s: 130, heads: 2, kv: 2, d: 20, causal: true},
			{b: 1, t: 70, s: 201, heads: 4, kv: 2, d: 33, causal: true, window: 50},
			{b: 2, t: 150, s: 150, heads: 2, kv: 1, d: 64, causal: true, segments: true},
			{b: 2, t: 65, s: 97, heads: 3, kv: 3, d: 40, keyMask: true},
			{b: 1, t: 66, s: 99, heads: 2, kv: 2, d: 24, mask: true},
			{b: 2, t: 66, s: 99, heads: 4, kv: 2, d: 24, mask: true, byHead: true},
			{b: 2, t: 3, s: 130, heads: 2, kv: 2, d: 16, mask: true, byHead: true, bySample: true, drop: true},
			{b: 3, t: 130, s: 70, heads: 2, kv: 1, d: 16, mask: true, bySample: true, keyMask: true},
			{b: 2, t: 40, s: 110, heads: 2, kv: 1, d: 16, causal: true, drop: true, keyMask: true, mask: true, segments: true},
			{b: 1, t: 1, s: 300, heads: 4, kv: 2, d: 128, causal: true},
			{b: 1, t: 33, s: 33, heads: 1, kv: 1, d: 256},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { checkAttention(t, pool, c.make()) })
		}
	})
}

func checkAttention(t *testing.T, pool *Pool, g *AttentionGrad) {
	g.Forward(pool)
	o, lse, dq, dk, dv, dmask := g.plain(g.DO)
	closeTo(t, "lse", g.LSE, lse)
	closeTo(t, "o", g.O, o)
	g.Backward(pool)
	closeTo(t, "dq", g.DQ, dq)
	closeTo(t, "dk", g.DK, dk)
	closeTo(t, "dv", g.DV, dv)
	if g.Mask == nil {
		return
	}
	of := AttentionMaskGrad{AttentionGrad: *g, DMask: make([]float32, len(g.Mask))}
	for i := range of.DMask {
		of.DMask[i] = float32(math.NaN())
	}
	of.Backward(pool)
	closeTo(t, "dmask", of.DMask, dmask)
}

// closeTo compares elements with the largest of them.
func closeTo(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	largest := 1.0
	for _, v := range want {
		if !math.IsInf(v, 0) {
			largest = max(largest, math.Abs(v))
		}
	}
	for i, w := range want {
		v := float64(got[i])
		if v != w && !(math.Abs(v-w) <= 3e-6*largest) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, v, w)
		}
	}
}

// The definition of the gradients in plain is itself checked by differences.
func TestPlainAttentionGradient(t *testing.T) {
	g := attentionCase{b: 1, t: 4, s: 6, heads: 2, kv: 1, d: 3, causal: true, mask: true, drop: true}.make()
	loss := func() (total float64) {
		o, _, _, _, _, _ := g.plain(g.DO)
		for i, v := range o {
			total += v * float64(g.DO[i])
		}
		return total
	}
	_, _, dq, dk, dv, dmask := g.plain(g.DO)
	for name, c := range map[string]struct {
		x []float32
		d []float64
	}{"dq": {g.Q, dq}, "dk": {g.K, dk}, "dv": {g.V, dv}, "dmask": {g.Mask, dmask}} {
		for i, v := range c.x {
			const h = 0x1p-9
			c.x[i] = v + h
			up := loss()
			c.x[i] = v - h
			want := (up - loss()) / float64(v+h-(v-h))
			c.x[i] = v
			if math.Abs(want-c.d[i]) > 1e-4 {
				t.Errorf("%s[%d] = %v, differences give %v", name, i, c.d[i], want)
			}
		}
	}
}

func TestAttentionDoesNotDependOnWorkers(t *testing.T) {
	one, two := NewPool(1), NewPool(2)
	defer one.Close()
	defer two.Close()
	c := attentionCase{b: 2, t: 150, s: 150, heads: 4, kv: 2, d: 32, causal: true}
	a, b := c.make(), c.make()
	a.Forward(one)
	a.Backward(one)
	b.Forward(two)
	b.Backward(two)
	for name, pair := range map[string][2][]float32{"o": {a.O, b.O}, "dq": {a.DQ, b.DQ}, "dk": {a.DK, b.DK}, "dv": {a.DV, b.DV}} {
		for i := range pair[0] {
			if pair[0][i] != pair[1][i] {
				t.Fatalf("%s[%d] is %v with one worker, %v with two", name, i, pair[0][i], pair[1][i])
			}
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	pool := NewPool(2)
	defer pool.Close()
	for _, t := range []int{256, 1024, 2048} {
		c := attentionCase{b: 1024 / min(t, 1024), t: t, s: t, heads: 8, kv: 8, d: 64, causal: true}
		g := c.make()
		flops := float64(c.b*c.heads*c.d) * float64(t) * float64(t+1) / 2
		b.Run(fmt.Sprintf("forward/%d", t), func(b *testing.B) {
			for b.Loop() {
				g.Forward(pool)
			}
			b.ReportMetric(4*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
		b.Run(fmt.Sprintf("backward/%d", t), func(b *testing.B) {
			for b.Loop() {
				g.Backward(pool)
			}
			b.ReportMetric(10*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
