package executor

import (
	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/shape"
)

// prepareReduce: the clip factor from partial sums, or the sum of gradients.
func (e *Executor) prepareReduce(s *plan.Instruction) (func(device.Queue) error, error) {
	if _, sums := s.Bound(plan.OutPartial, 0); sums {
		return e.prepareClip(s)
	}
	return e.prepareSum(s)
}

// prepareSum adds gradients to the first, in order.
func (e *Executor) prepareSum(s *plan.Instruction) (func(device.Queue) error, error) {
	slab := &e.plan.Slabs[s.Slab]
	t := op.Type{DType: e.plan.Optimizer.GradTypeOf(slab.TrainedType()), Shape: shape.Shape{slab.Elements}}
	call, err := op.Make(op.Copy, op.Attr{Accumulate: true}, t)
	if err != nil {
		return nil, err
	}
	k, err := e.devices[s.Device].Kernel(call)
	if err != nil {
		return nil, err
	}
	var list []launch
	for _, b := range s.Bindings[1:] {
		list = append(list, launch{k, device.Launch{Buffers: []device.Buffer{e.buffer(b.Buffer), e.buffer(s.Bindings[0].Buffer)}}})
	}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}

// prepareClip: the gradient norm and clip factor from the partial sums.
func (e *Executor) prepareClip(s *plan.Instruction) (func(device.Queue) error, error) {
	partials, err := e.region(s, plan.Place{Region: plan.OutPartial}, 0)
	if err != nil {
		return nil, err
	}
	bind, _ := s.Bound(plan.OutPartial, 0)
	partials.Bytes = e.plan.Buffers[bind.Buffer].Bytes
	clip, err := e.region(s, plan.Place{Region: plan.InClip}, 8)
	if err != nil {
		return nil, err
	}
	call, err := op.Make(op.ClipScale, op.Attr{}, op.Type{DType: dtype.F64, Shape: shape.Shape{partials.Bytes / 8}})
	if err != nil {
		return nil, err
	}
	k, err := e.devices[s.Device].Kernel(call)
	if err != nil {
		return nil, err
	}
	e.clipArgs, e.norm = &op.Args{}, deviceBuffer{clip, s.Device}
	list := []launch{{k, device.Launch{Args: e.clipArgs, Buffers: []device.Buffer{partials, clip}}}}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}
