package main

// layerParams are the weights of a layer, or their gradients.
type layerParams struct {
	norm1          []float32 // [C]
	q, k, v        []float32 // [H*D,C] [K*D,C] [K*D,C]
	o              []float32 // [C,H*D]
	norm2          []float32 // [C]
	gate, up, down []float32 // [F,C] [F,C] [C,F]
}

// layerParams splits a slab into the weights of a layer, in the order of params.
func (d dims) layerParams(slab []float32) layerParams {
	list := d.params(1)
	next := func() (part []float32) {
		part, slab = slab[:list[0].size], slab[list[0].size:]
		list = list[1:]
		return part
	}
	return layerParams{norm1: next(), q: next(), k: next(), v: next(), o: next(),
		norm2: next(), gate: next(), up: next(), down: next()}
}

// layerValues are the activations of a layer, or their gradients.
type layerValues struct {
	normed1       []float32 // [N,C]
	q, k, v       []float32 // [N,H,D] [N,K,D] [N,K,D]; q and k after rope
	probs         []float32 // [B,H,T,T]
	mixed         []float32 // [N,H,D]
	mid           []float32 // [N,C] the residual stream after attention
	normed2       []float32 // [N,C]
	gate, up, act []float32 // [N,F]
}

// layerValues splits a layer's saved buffer into its activations.
func (d dims) layerValues(slab []float32) layerValues {
	n := d.B * d.T
	take := func(size int) (part []float32) {
		part, slab = slab[:size], slab[size:]
		return part
	}
	return layerValues{normed1: take(n * d.C),
		q: take(n * d.H * d.D), k: take(n * d.K * d.D), v: take(n * d.K * d.D),
		probs: take(d.B * d.H * d.T * d.T), mixed: take(n * d.H * d.D),
		mid: take(n * d.C), normed2: take(n * d.C),
		gate: take(n * d.F), up: take(n * d.F), act: take(n * d.F)}
}

// layerForward computes out[N,C] from x[N,C], and stores the activations that backward
// needs.
func (d dims) layerForward(weights, x, activations, out []float32) {
	w, a := d.layerParams(weights), d.layerValues(activations)
	wide, narrow := d.H*d.D, d.K*d.D

	rmsnorm(a.normed1, x, w.norm1, d.Eps)
	linear(a.q, a.normed1, w.q, d.C, wide)
	linear(a.k, a.normed1, w.k, d.C, narrow)
	linear(a.v, a.normed1, w.v, d.C, narrow)
	d.rope(a.q, d.H, 1)
	d.rope(a.k, d.K, 1)
	d.attention(a.mixed, a.probs, a.q, a.k, a.v)
	linear(a.mid, a.mixed, w.o, wide, d.C)
	add(a.mid, x)

	rmsnorm(a.normed2, a.mid, w.norm2, d.Eps)
	linear(a.gate, a.normed2, w.gate, d.C, d.F)
	linear(a.up, a.normed2, w.up, d.C, d.F)
	swiglu(a.act, a.gate, a.up)
	linear(out, a.act, w.down, d.F, d.C)
	add(out, a.mid)
}

// layerBackward is layerForward in reverse. It adds to dx and dweights; work must be
// zeroed.
func (d dims) layerBackward(dx, dweights, dout, weights, x, activations, work []float32) {
	w, dw := d.layerParams(weights), d.layerParams(dweights)
	a, g := d.layerValues(activations), d.layerValues(work)
	wide, narrow := d.H*d.D, d.K*d.D

	add(g.mid, dout)
	linearBackward(g.act, dw.down, dout, a.act, w.down, d.F, d.C)
	swigluBackward(g.gate, g.up, g.act, a.gate, a.up)
	linearBackward(g.normed2, dw.up, g.up, a.normed2, w.up, d.C, d.F)
	linearBackward(g.normed2, dw.gate, g.gate, a.normed2, w.gate, d.C, d.F)
	rmsnormBackward(g.mid, dw.norm2, g.normed2, a.mid, w.norm2, d.Eps)

	add(dx, g.mid)
	linearBackward(g.mixed, dw.o, g.mid, a.mixed, w.o, wide, d.C)
	d.attentionBackward(g.q, g.k, g.v, g.mixed, a.probs, a.q, a.k, a.v)
	d.rope(g.k, d.K, -1)
	d.rope(g.q, d.H, -1)
	linearBackward(g.normed1, dw.v, g.v, a.normed1, w.v, d.C, narrow)
	linearBackward(g.normed1, dw.k, g.k, a.normed1, w.k, d.C, narrow)
	linearBackward(g.normed1, dw.q, g.q, a.normed1, w.q, d.C, wide)
	rmsnormBackward(dx, dw.norm1, g.normed1, x, w.norm1, d.Eps)
}

// headForward returns the loss of x[N,C]. It saves the normed stream [N,C] and the
// gradient of the logits [N,V], which overwrites the logits.
func (d dims) headForward(weights, x, activations []float32, targets []int64) float64 {
	norm, out := weights[:d.C], weights[d.C:]
	normed, logits := activations[:len(x)], activations[len(x):]
	rmsnorm(normed, x, norm, d.Eps)
	linear(logits, normed, out, d.C, d.V)
	return crossEntropy(logits, targets, d.V)
}

// headBackward adds to dx and dweights; dnormed[N,C] must be zeroed.
func (d dims) headBackward(dx, dweights, weights, x, activations, dnormed []float32) {
	norm, out, dnorm, dout := weights[:d.C], weights[d.C:], dweights[:d.C], dweights[d.C:]
	normed, dlogits := activations[:len(x)], activations[len(x):]
	linearBackward(dnormed, dout, dlogits, normed, out, d.C, d.V)
	rmsnormBackward(dx, dnorm, dnormed, x, norm, d.Eps)
}

// add adds x to the residual stream.
func add(stream, x []float32) {
	for i, v := range x {
		stream[i] += v
	}
}
