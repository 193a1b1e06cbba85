package rig

import (
	"slices"

	"spillway/device"
	"spillway/op"
)

const (
	// coldBytes is more than the caches of GPUs hold.
	coldBytes = 160 << 20
	// mostElsewhere is in how many places small weights lie at most: reading those takes a GPU
	// little time from anywhere.
	mostElsewhere = 512
)

// coldOperands are those that a run has not touched for long when it launches a call: weights, keys and values of a cache,
// and what an update reads. Activations were mostly made just before.
func coldOperands(c op.Call) []int {
	switch {
	case c.Kind == op.CachedAttention:
		return []int{3, 4}
	case c.Kind == op.AttendCache:
		return []int{1, 2}
	case c.Kind == op.NormHeads:
		return []int{2, 3, 4}
	case c.Kind == op.NormGated:
		return []int{2, 3}
	case c.InPlace() != nil && !c.Kind.WholeParam():
		list := make([]int, len(c.In))
		for i := range list {
			list[i] = i
		}
		return list
	case c.Kind == op.MatMul && !c.Attr.TransA, c.Kind == op.QuantizedMatmul, c.Kind == op.QuantizedPlus:
		return []int{1}
	case c.Kind == op.Dequantize, c.Kind == op.SumSquares: // of a gradient, when all are complete
		return []int{0}
	}
	return nil
}

// coldBuffers are those operands, or where a bench says so all operands and outputs.
func (b *bench) coldBuffers(c op.Call) []int {
	if !b.whole {
		return coldOperands(c)
	}
	list := make([]int, 0, len(c.In)+len(c.Out))
	for i := range c.In {
		list = append(list, i)
	}
	for i := len(c.InPlace()); i < len(c.Out); i++ {
		list = append(list, len(c.In)+i)
	}
	return list
}

// elsewhere are copies of a launch whose cold operands lie elsewhere, behind the size bytes of the
// launch itself, and the bytes of all.
func (b *bench) elsewhere(call op.Call, l *device.Launch, size int64) (list []*device.Launch, bytes int64) {
	cold := b.coldBuffers(call)
	align := max(b.dev.Info().Alignment, 1)
	up := func(n int64) int64 { return (n + align - 1) / align * align }
	var each int64
	for _, i := range cold {
		each += up(l.Buffers[i].Bytes)
	}
	if each == 0 || each >= b.cold {
		return nil, size
	}
	n := min(b.cold/each, mostElsewhere)
	if b.room > 0 {
		n = min(n, max(b.room-up(size), 0)/each)
	}
	at := up(size)
	for range n {
		other := &device.Launch{Buffers: slices.Clone(l.Buffers), Workspace: l.Workspace, Args: l.Args}
		for _, i := range cold {
			other.Buffers[i].Offset = at
			at += up(l.Buffers[i].Bytes)
		}
		for out, in := range call.InPlace() {
			other.Buffers[len(call.In)+out] = other.Buffers[in]
		}
		list = append(list, other)
	}
	return list, max(at, size)
}
