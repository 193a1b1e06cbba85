package executor

import (
	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/shape"
)

// prepareReduce: the gradient norm and clip factor from the partial sums.
func (e *Executor) prepareReduce(s *plan.Step) (func(device.Queue) error, error) {
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
	e.clipArgs = &op.Args{}
	list := []launch{{k, device.Launch{Args: e.clipArgs, Buffers: []device.Buffer{partials, clip}}}}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}
