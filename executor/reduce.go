package executor

import (
	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/shape"
)

// sum adds gradients to the first, in order.
func (c *compiler) sum(s *plan.Instruction) (func(device.Queue) error, error) {
	slab := &c.plan.Slabs[s.Slab]
	t := op.Type{DType: c.plan.Optimizer.GradTypeOf(slab.TrainedType()), Shape: shape.Shape{slab.Elements}}
	call, err := op.Make(op.Copy, op.Attr{Accumulate: true}, t)
	if err != nil {
		return nil, err
	}
	k, err := c.devices[s.Device].Kernel(call)
	if err != nil {
		return nil, err
	}
	var list []launch
	for _, b := range s.Bindings[1:] {
		list = append(list, launch{k, device.Launch{Buffers: []device.Buffer{c.buffer(b.Buffer), c.buffer(s.Bindings[0].Buffer)}}})
	}
	return c.launches(list), nil
}

// clip computes the gradient norm and the clip factor from the partial sums.
func (c *compiler) clip(s *plan.Instruction) (func(device.Queue) error, error) {
	partials, err := c.region(s, plan.Place{Region: plan.OutPartial}, 0)
	if err != nil {
		return nil, err
	}
	bind, _ := s.Bound(plan.OutPartial, 0)
	partials.Bytes = c.plan.Buffers[bind.Buffer].Bytes
	clip, err := c.region(s, plan.Place{Region: plan.InClip}, 8)
	if err != nil {
		return nil, err
	}
	call, err := op.Make(op.ClipScale, op.Attr{}, op.Type{DType: dtype.F64, Shape: shape.Shape{partials.Bytes / 8}})
	if err != nil {
		return nil, err
	}
	k, err := c.devices[s.Device].Kernel(call)
	if err != nil {
		return nil, err
	}
	args := &op.Args{}
	c.out.args.clip, c.out.norm = args, deviceBuffer{clip, s.Device}
	return c.launches([]launch{{k, device.Launch{Args: args, Buffers: []device.Buffer{partials, clip}}}}), nil
}
