package nn

import (
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// BatchNorm is PyTorch's BatchNorm1d, 2d and 3d: while training each channel is normalized by its mean
// and variance over the batch, and running means of both are stored as weights; otherwise by those.
// A step moves them towards the mean over its micro-batches.
type BatchNorm struct {
	Weight          *Param `hf:"weight,optional"`
	Bias            *Param `hf:"bias,optional"`
	RunningMean     *Param `hf:"running_mean"`
	RunningVariance *Param `hf:"running_var"`
	Eps             float64
	Precision
}

// NewBatchNorm starts as PyTorch's, with a momentum of 0.1.
func NewBatchNorm(channels int64) *BatchNorm {
	running := func(start float64) *Param {
		return &Param{Shape: []int64{channels}, Init: Constant(start), Storage: dtype.F32, Momentum: 0.1}
	}
	return &BatchNorm{Weight: NewParam(Constant(1), channels), Bias: NewParam(Constant(0), channels),
		RunningMean: running(0), RunningVariance: running(1), Eps: 1e-5}
}

// Forward keeps the shape [B S.. C].
func (n *BatchNorm) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return n.In(b, x, func(x graph.Value) graph.Value {
		for _, p := range []*Param{n.RunningMean, n.RunningVariance} {
			if m := p.Momentum; !(m >= 0) {
				b.Fail("batch norm: a momentum of %v; it must not be below 0", m)
				return 0
			}
		}
		if b.Training() && !(n.Eps > 0) {
			b.Fail("batch norm: an eps of %v while training; it must be above 0", n.Eps)
			return 0
		}
		if m, v := n.RunningMean.Momentum, n.RunningVariance.Momentum; (m > 0) != (v > 0) {
			b.Fail("batch norm: momenta of %v and %v for the running mean and variance; give both one, or 0 to both to use what they are while training too", m, v)
			return 0
		}
		w, bias := n.Weight.Value(b), n.Bias.Value(b)
		if b.Training() && n.RunningMean.Momentum > 0 {
			return b.BatchNorm(x, w, bias, n.RunningMean.stored(b), n.RunningVariance.stored(b), n.Eps)
		}
		// y = x·scale + (bias - mean·scale), computed in f32 and used in the type of x.
		scale := b.Map(op.Rsqrt, 0, 0, b.PlusConstant(n.RunningVariance.stored(b), n.Eps))
		if w != 0 {
			scale = b.Mul(scale, b.Cast(w, dtype.F32))
		}
		shift := b.Scale(b.Mul(n.RunningMean.stored(b), scale), -1)
		if bias != 0 {
			shift = b.Add(shift, b.Cast(bias, dtype.F32))
		}
		return b.Add(b.Mul(x, b.Cast(scale, b.DType)), b.Cast(shift, b.DType))
	})
}

// stored is the param in the type it is stored in.
func (p *Param) stored(b *graph.Builder) graph.Value {
	if p.Name == "" {
		return p.Value(b) // which says what is wrong
	}
	return b.Param(p.Name, op.Type{DType: dtype.F32, Shape: p.Shape}, p.Frozen || p.Paused || p.Momentum == 0)
}
