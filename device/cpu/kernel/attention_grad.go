package kernel

import "math"

// AttentionGrad is the backward pass of Attention: from the output, its gradient DO
// and LSE it computes DQ, DK and DV. A piece is all of one key-value head, walked in
// one order, so that every sum has one order and scores are computed only once.
//
// With weights p = e^(s - lse), for each tile:
//
//	dV += p·dO     dp = V·dOᵀ     ds = scale·p·(dp - Σ o·dO)     dK += ds·Q     dQ += dsᵀ·K
type AttentionGrad struct {
	Attention
	DO, DQ, DK, DV []float32
}

// Backward computes the gradients on the pool.
func (g *AttentionGrad) Backward(p *Pool) {
	g.start(p)
	p.Launch(g.B*g.KVHeads, g)
}

// Run computes the gradients of one key-value head and of the heads that share it.
func (g *AttentionGrad) Run(worker, piece int) {
	group := g.Heads / g.KVHeads
	b, h0 := piece/g.KVHeads, piece%g.KVHeads*group
	for j := range g.S {
		at := g.kvAt(queries{b: b, h: h0}, j)
		clear(g.DK[at:][:g.D])
		clear(g.DV[at:][:g.D])
	}
	for h := h0; h < h0+group; h++ {
		for i := 0; i < g.T; i += tileQ {
			q := g.queries(b, h, i)
			g.backwardTile(g.scratch(worker, q), q)
		}
	}
}

func (g *AttentionGrad) backwardTile(w scratch, q queries) {
	at := g.qAt(q, q.i0)
	g.transpose(w.qT, g.Q[at:], q)
	Scale(w.qT, w.qT, g.Scale)
	g.transpose(w.doT, g.DO[at:], q)
	g.rowTerms(w, q)
	first := true
	for j, end := g.keyRange(q); j < end; j += tileKV {
		n := min(tileKV, end-j)
		if !g.scores(w, q, j, n) {
			continue
		}
		g.path.columnExp(w.sum, w.top, &w.s[0], tileQ, n)
		g.matmuls(w.ds, g.V[g.kvAt(q, j):], w.doT, q, j, n)
		g.clearUnseen(w.ds, q, j, n)
		g.drop(w, w.ds, q, j, n)
		g.path.columnGrad(w.delta, &w.ds[0], &w.s[0], tileQ, n, g.Scale)
		g.drop(w, w.s, q, j, n)
		g.addKeys(g.DV, w.s, g.DO[at:], q, j, n)
		g.addKeys(g.DK, w.ds, g.Q[at:], q, j, n)
		g.addQueries(g.DQ, w.ds, g.K, q, j, n, first)
		first = false
	}
	if first {
		for i := range q.n {
			clear(g.DQ[g.qAt(q, q.i0+i):][:g.D])
		}
	}
}

// rowTerms fills top with the logarithms of the sums and delta with Σ o·dO. A query
// that saw nothing has no weights: e^(s - ∞) is zero.
func (g *AttentionGrad) rowTerms(w scratch, q queries) {
	lse := g.LSE[(q.b*g.Heads+q.h)*g.T+q.i0:]
	clear(w.top)
	clear(w.delta)
	clear(w.sum)
	for i := range q.n {
		at := g.qAt(q, q.i0+i)
		w.delta[i] = float32(Dot(g.O[at:][:g.D], g.DO[at:][:g.D]))
		w.top[i] = lse[i]
		if math.IsInf(float64(lse[i]), -1) {
			w.top[i] = float32(math.Inf(1))
		}
	}
}

// clearUnseen clears what matmuls has left as it was: multiplied by a weight of zero a NaN would stay one.
func (g *AttentionGrad) clearUnseen(s []float32, q queries, j, n int) {
	first := q.i0 + g.S - g.T
	for k := max(first-j, 0); g.Causal && k < n; k++ {
		clear(s[k*tileQ:][:min(j+k-first, q.width)])
	}
}

// addKeys adds s·x to the rows of keys j to j+n, x being the rows of the queries. A panel of keys takes the queries from the
// first on that may see them by position.
func (g *AttentionGrad) addKeys(out, s, x []float32, q queries, j, n int) {
	r, o := g.path, out[g.kvAt(q, j):]
	for k := 0; k < n; k += r.mr {
		h, first := min(r.mr, n-k), 0
		if g.Causal {
			first = max(j+k-(q.i0+g.S-g.T), 0)
		}
		if first >= q.n {
			return
		}
		for c := 0; c < g.D; c += r.nr {
			at := &o[k*g.kvStep()+c]
			r.tiles(&r.tileRows, h, tileQ, q.n-first, &s[k*tileQ+first], tileQ, &x[first*g.qStep()+c], g.qStep(), at, g.kvStep(), min(r.nr, g.D-c), at, g.kvStep(), fetch{})
		}
	}
}

// AttentionMaskGrad is the gradient of the mask of Attention: DMask is laid out like Mask. A
// piece is a tile of queries of one mask, over the samples and heads that share it in their order.
type AttentionMaskGrad struct {
	AttentionGrad
	DMask []float32
}

// Backward computes DMask on the pool.
func (g *AttentionMaskGrad) Backward(p *Pool) {
	g.start(p)
	p.Launch(len(g.DMask)/(g.T*g.S)*ceil(g.T, tileQ), g)
}

// Run computes the rows of one tile of queries.
func (g *AttentionMaskGrad) Run(worker, piece int) {
	tiles, size := ceil(g.T, tileQ), g.T*g.S
	mask, i0 := piece/tiles, piece%tiles*tileQ
	clear(g.DMask[mask*size+i0*g.S : mask*size+min(i0+tileQ, g.T)*g.S])
	for b := range g.B {
		for h := range g.Heads {
			if b*g.MaskSample+h*g.MaskHead == mask*size {
				q := g.queries(b, h, i0)
				g.maskTile(g.scratch(worker, q), q, g.DMask[mask*size:])
			}
		}
	}
}

// maskTile adds the gradients of the scores of one head's queries to rows of a mask.
func (g *AttentionMaskGrad) maskTile(w scratch, q queries, out []float32) {
	at := g.qAt(q, q.i0)
	g.transpose(w.qT, g.Q[at:], q)
	Scale(w.qT, w.qT, g.Scale)
	g.transpose(w.doT, g.DO[at:], q)
	g.rowTerms(w, q)
	for j, end := g.keyRange(q); j < end; j += tileKV {
		n := min(tileKV, end-j)
		if !g.scores(w, q, j, n) {
			continue
		}
		g.path.columnExp(w.sum, w.top, &w.s[0], tileQ, n)
		g.matmuls(w.ds, g.V[g.kvAt(q, j):], w.doT, q, j, n)
		g.clearUnseen(w.ds, q, j, n)
		g.drop(w, w.ds, q, j, n)
		g.path.columnGrad(w.delta, &w.ds[0], &w.s[0], tileQ, n, 1)
		for i := range q.n {
			row := out[(q.i0+i)*g.S+j:][:n]
			for k := range row {
				row[k] += w.ds[k*tileQ+i]
			}
		}
	}
}
