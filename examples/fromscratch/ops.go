package main

import "math"

// Every operation is followed by its gradient. A backward *adds* to dx and dw, so that a
// value that is used twice gets both contributions. Values are float32, sums float64.

// embed: out[N,C] = rows of table[V,C].
func embed(out, table []float32, ids []int64, c int) {
	for n, id := range ids {
		copy(out[n*c:(n+1)*c], table[int(id)*c:])
	}
}

func embedBackward(dtable, dout []float32, ids []int64, c int) {
	for n, id := range ids {
		for i := range c {
			dtable[int(id)*c+i] += dout[n*c+i]
		}
	}
}

// linear: out[N,O] = x[N,I] times w[O,I] transposed.
func linear(out, x, w []float32, in, outs int) {
	for n := range len(x) / in {
		for o := range outs {
			sum := 0.0
			for i := range in {
				sum += float64(x[n*in+i]) * float64(w[o*in+i])
			}
			out[n*outs+o] = float32(sum)
		}
	}
}

func linearBackward(dx, dw, dout, x, w []float32, in, outs int) {
	rows := len(x) / in
	for n := range rows {
		for i := range in {
			sum := 0.0
			for o := range outs {
				sum += float64(dout[n*outs+o]) * float64(w[o*in+i])
			}
			dx[n*in+i] += float32(sum)
		}
	}
	for o := range outs {
		for i := range in {
			sum := 0.0
			for n := range rows {
				sum += float64(dout[n*outs+o]) * float64(x[n*in+i])
			}
			dw[o*in+i] += float32(sum)
		}
	}
}

// rmsnorm: out[N,C] = x / sqrt(mean(x²) + eps) * w[C].
func rmsnorm(out, x, w []float32, eps float64) {
	c := len(w)
	for n := 0; n < len(x); n += c {
		r := inverseRMS(x[n:n+c], eps)
		for i := range c {
			out[n+i] = float32(float64(x[n+i]) * r * float64(w[i]))
		}
	}
}

func rmsnormBackward(dx, dw, dout, x, w []float32, eps float64) {
	c := len(w)
	for n := 0; n < len(x); n += c {
		r := inverseRMS(x[n:n+c], eps)
		dot := 0.0 // the part of the gradient that goes through the norm of the row
		for i := range c {
			dot += float64(dout[n+i]) * float64(w[i]) * float64(x[n+i])
		}
		for i := range c {
			xi, di := float64(x[n+i]), float64(dout[n+i])
			dx[n+i] += float32(r*di*float64(w[i]) - r*r*r*dot/float64(c)*xi)
			dw[i] += float32(di * xi * r)
		}
	}
}

func inverseRMS(row []float32, eps float64) float64 {
	sum := 0.0
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	return 1 / math.Sqrt(sum/float64(len(row))+eps)
}

// rope rotates x[B,T,heads,D] in place: elements i and i+D/2 of a head are a point, which
// is rotated by its position times freqs[i]. Direction -1 rotates back: the gradient.
func (d dims) rope(x []float32, heads int, direction float64) {
	half := d.D / 2
	for row := range len(x) / d.D {
		position := float64(row / heads % d.T)
		head := x[row*d.D : (row+1)*d.D]
		for i, freq := range d.freqs {
			sin, cos := math.Sincos(direction * position * freq)
			a, b := float64(head[i]), float64(head[i+half])
			head[i], head[i+half] = float32(a*cos-b*sin), float32(b*cos+a*sin)
		}
	}
}

// attend calls f once for each query, with the offset of its head in q[B,T,H,D], its
// probabilities over positions 0..t in probs[B,H,T,T], and the offset of the key or value
// head of position 0 in k or v [B,T,K,D]. The next position is K*D elements further.
func (d dims) attend(probs []float32, f func(q int, p []float32, kv int)) {
	for b := range d.B {
		for h := range d.H {
			for t := range d.T {
				row := ((b*d.H+h)*d.T + t) * d.T
				f(((b*d.T+t)*d.H+h)*d.D, probs[row:row+t+1], (b*d.T*d.K+h*d.K/d.H)*d.D)
			}
		}
	}
}

// attention: out[B,T,H,D] = softmax(q·k/√D over positions up to the query's) · v.
func (d dims) attention(out, probs, q, k, v []float32) {
	scale, next := 1/math.Sqrt(float64(d.D)), d.K*d.D
	d.attend(probs, func(qi int, p []float32, kv int) {
		for j := range p {
			p[j] = float32(scale * dot(q[qi:qi+d.D], k[kv+j*next:]))
		}
		softmax(p)
		for i := range d.D {
			sum := 0.0
			for j, pj := range p {
				sum += float64(pj) * float64(v[kv+j*next+i])
			}
			out[qi+i] = float32(sum)
		}
	})
}

func (d dims) attentionBackward(dq, dk, dv, dout, probs, q, k, v []float32) {
	scale, next := 1/math.Sqrt(float64(d.D)), d.K*d.D
	dp := make([]float64, d.T) // gradient of one row of probabilities
	d.attend(probs, func(qi int, p []float32, kv int) {
		mean := 0.0
		for j, pj := range p {
			dp[j] = dot(dout[qi:qi+d.D], v[kv+j*next:])
			mean += float64(pj) * dp[j]
		}
		for j, pj := range p {
			ds := scale * float64(pj) * (dp[j] - mean) // gradient of q·k
			for i := range d.D {
				at := kv + j*next + i
				dq[qi+i] += float32(ds * float64(k[at]))
				dk[at] += float32(ds * float64(q[qi+i]))
				dv[at] += float32(float64(pj) * float64(dout[qi+i]))
			}
		}
	})
}

// dot is the dot product of a and the first len(a) elements of b.
func dot(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// softmax turns scores into probabilities in place and returns log(sum(exp(score))).
func softmax(x []float32) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, float64(v))
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v)-top) / sum)
	}
	return top + math.Log(sum)
}

// swiglu: out = gate * sigmoid(gate) * up.
func swiglu(out, gate, up []float32) {
	for i := range out {
		g := float64(gate[i])
		out[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
	}
}

func swigluBackward(dgate, dup, dout, gate, up []float32) {
	for i := range dout {
		g, do := float64(gate[i]), float64(dout[i])
		s := 1 / (1 + math.Exp(-g))
		dgate[i] += float32(do * float64(up[i]) * s * (1 + g*(1-s)))
		dup[i] += float32(do * g * s)
	}
}

// crossEntropy returns the mean of -log(probability of the target) over the rows of
// logits[N,V] that have a target, and overwrites logits with its gradient.
func crossEntropy(logits []float32, targets []int64, v int) float64 {
	loss, count := 0.0, 0
	for n, target := range targets {
		row := logits[n*v : (n+1)*v]
		if target < 0 {
			clear(row)
			continue
		}
		score := float64(row[target])
		loss += softmax(row) - score
		row[target]--
		count++
	}
	for i := range logits {
		logits[i] /= float32(count)
	}
	return loss / float64(count)
}
