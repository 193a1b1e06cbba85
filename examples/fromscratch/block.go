package main

import "math"

// The sizes that the shape comments of this program use.
const (
	blocks = 8
	N      = 16 // rows of the batch
	C      = 32 // width of a row
	F      = 64 // width inside a block
)

// blockForward computes out[N,C] = x + gelu(x·upᵀ)·downᵀ, with up[F,C] and down[C,F] one
// after the other in w, so that they are moved with one copy. It saves gelu's input and
// output, [N,F] each.
func blockForward(out, w, x, activations []float64) {
	up, down, pre, act := w[:F*C], w[F*C:], activations[:N*F], activations[N*F:]
	linear(pre, x, up, C, F)
	for i, v := range pre {
		act[i] = v * normal(v)
	}
	linear(out, act, down, F, C)
	add(out, x)
}

// blockBackward is blockForward in reverse. It adds to dx and dw; dact[N,F] must be
// zeroed.
func blockBackward(dx, dw, dout, w, x, activations, dact []float64) {
	up, down, pre, act := w[:F*C], w[F*C:], activations[:N*F], activations[N*F:]
	linearBackward(dact, dw[F*C:], dout, act, down, F, C)
	for i, v := range pre {
		dact[i] *= normal(v) + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi)
	}
	linearBackward(dx, dw[:F*C], dact, x, up, C, F)
	add(dx, dout)
}

// normal is the share of a normal distribution below v; gelu(v) is v times it.
func normal(v float64) float64 { return (1 + math.Erf(v/math.Sqrt2)) / 2 }

// add adds x to the residual stream.
func add(stream, x []float64) {
	for i, v := range x {
		stream[i] += v
	}
}

// linear: out[N,O] = x[N,I] times w[O,I] transposed.
func linear(out, x, w []float64, in, outs int) {
	for n := range N {
		for o := range outs {
			for i := range in {
				out[n*outs+o] += x[n*in+i] * w[o*in+i]
			}
		}
	}
}

func linearBackward(dx, dw, dout, x, w []float64, in, outs int) {
	for n := range N {
		for o := range outs {
			d := dout[n*outs+o]
			for i := range in {
				dx[n*in+i] += d * w[o*in+i]
				dw[o*in+i] += d * x[n*in+i]
			}
		}
	}
}

// meanSquare is the loss: the mean of the squared differences.
func meanSquare(y, target []float64) (loss float64) {
	for i, v := range y {
		loss += (v - target[i]) * (v - target[i]) / (N * C)
	}
	return loss
}

func meanSquareBackward(dy, y, target []float64) {
	for i, v := range y {
		dy[i] = 2 * (v - target[i]) / (N * C)
	}
}

// The options of AdamW.
const (
	lr    = 1e-3
	beta1 = 0.9
	beta2 = 0.999
	tiny  = 1e-8
	decay = 0.01 // weight decay
)

// adamw updates the weights w with the gradient g. m and v are the running means of the
// gradient and of its square. Both start at zero, which the division by 1-beta^t
// corrects. t counts updates from 1.
func adamw(w, g, m, v []float64, t int) {
	bias1, bias2 := 1-math.Pow(beta1, float64(t)), 1-math.Pow(beta2, float64(t))
	for i := range w {
		m[i] = beta1*m[i] + (1-beta1)*g[i]
		v[i] = beta2*v[i] + (1-beta2)*g[i]*g[i]
		w[i] = w[i]*(1-lr*decay) - lr*m[i]/bias1/(math.Sqrt(v[i]/bias2)+tiny)
	}
}
