package nn

import (
	"fmt"

	"spillway/dtype"
	"spillway/graph"
)

// NewBuffer is PyTorch's register_buffer of numbers that move while a model trains, such as a codebook of means: with each update they go by a share momentum of the
// way to what Follow names; 1 replaces them. They are saved, streamed and restored like weights, in f32, and no gradient passes to them.
func NewBuffer(init Init, momentum float64, dims ...int64) *Param {
	return &Param{Shape: dims, Init: init, Storage: dtype.F32, Momentum: momentum}
}

// Follow says what a buffer moves towards, in the block that reads it, and gives what it will be after the update. Value gives what it was before. While the
// model is not trained, or the buffer is frozen, nothing moves and both are the same.
func (p *Param) Follow(b *graph.Builder, x graph.Value) graph.Value {
	if !(p.Momentum > 0 && p.Momentum <= 1) {
		b.Fail("follow: %s has a momentum of %v; make it by NewBuffer with one above 0, up to 1, which replaces it", p.Name, p.Momentum)
		return 0
	}
	v := p.stored(b)
	if b.Training() && !p.Frozen && !p.Paused {
		v = b.Follow(v, x, p.Momentum)
	}
	return b.Cast(v, b.DType)
}

// statistic is a running statistic as a constant. An average of weights is what it will be after its move.
func (p *Param) statistic(b *graph.Builder) graph.Value {
	v := p.stored(b)
	switch {
	case !b.Training() || p.Frozen || p.Paused:
		return v
	case p.AverageOf == nil:
		return b.Detach(v)
	}
	if moved := b.Followed(v); moved != 0 {
		return moved
	}
	return b.Follow(v, p.AverageOf.Value(b), p.Momentum)
}

// MovingAverage makes buffers of the params of a layer: moving averages of those of another of the same structure, as the target or momentum encoder of BYOL, MoCo and DINO has them. A step first moves each of them
// by a share of the way to the weight it is the average of, PyTorch's (1-m)·(q-k), and computes with that. Both layers are called in the same block. Running statistics of norms stay their own.
func MovingAverage(target, online any, share float64) error {
	if !(share > 0 && share <= 1) {
		return fmt.Errorf("a moving average by a share of %v; it is above 0, up to 1: 1 less PyTorch's momentum", share)
	}
	k, err := paramsOf(target)
	if err != nil {
		return fmt.Errorf("moving average: %w", err)
	}
	q, err := paramsOf(online)
	if err != nil {
		return fmt.Errorf("moving average: %w", err)
	}
	if len(k) != len(q) {
		return fmt.Errorf("moving average: %d params of %d; make both layers alike", len(k), len(q))
	}
	for i, p := range k {
		if !p.Shape.Equal(q[i].Shape) || p == q[i] {
			return fmt.Errorf("moving average: param %d is %v, of one that is %v; make both layers alike, and two", i, p.Shape, q[i].Shape)
		}
		if p.Momentum == 0 {
			p.Storage, p.Momentum, p.AverageOf = dtype.F32, share, q[i]
		}
	}
	return nil
}

// paramsOf are those of a layer, each once.
func paramsOf(layer any) (list []*Param, err error) {
	seen := map[*Param]bool{}
	err = Walk(layer, func(_ string, part any) error {
		if p, is := part.(*Param); is && !seen[p] {
			seen[p] = true
			list = append(list, p)
		}
		return nil
	})
	return list, err
}
