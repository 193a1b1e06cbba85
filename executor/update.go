package executor

import (
	"encoding/binary"
	"fmt"

	"spillway/device"
	"spillway/op"
	"spillway/plan"
)

// update prepares a launch of the optimizer's kernel for every span of a piece.
func (c *compiler) update(s *plan.Instruction) (func(device.Queue) error, error) {
	if c.plan.Optimizer == nil {
		return nil, fmt.Errorf("the plan has no optimizer")
	}
	if j, ok := c.devices[s.Device].(device.Joiner); ok {
		return c.joinedUpdate(s, j)
	}
	var holds, list []launch
	slab, o := &c.plan.Slabs[s.Slab], c.plan.Optimizer
	for _, span := range o.Spans(slab, slab.Pieces[s.Piece]) {
		l, err := c.updateLaunch(s, span)
		if err == nil {
			list = append(list, l)
		}
		if err == nil && o.Averaged {
			l, err = c.averageLaunch(s, span)
			list = append(list, l)
		}
		if err == nil && o.Held {
			l, err = c.holdLaunch(s, span)
			holds = append(holds, l)
		}
		if err != nil {
			return nil, fmt.Errorf("params from %s on: %w", span.Name, err)
		}
	}
	if !o.Held {
		return c.launches(list), nil
	}
	hold, apply, args := c.launches(holds), c.launches(list), &c.out.args
	return func(q device.Queue) error {
		if args.apply {
			return apply(q)
		}
		return hold(q)
	}, nil
}

// newUpdateArgs are the numbers of a launch, which are filled in for each iteration.
func (c *compiler) newUpdateArgs(s *plan.Instruction, span plan.Span, launches launchedFor) *op.Args {
	args := &op.Args{}
	c.out.args.updates = append(c.out.args.updates, updateArgs{args, launches, span.Decay, span.Group, span.Momentum, s.Slab, span.Element, s.Deferred})
	return args
}

func (c *compiler) updateLaunch(s *plan.Instruction, span plan.Span) (launch, error) {
	k, err := c.updateKernel(s.Device, span)
	if err != nil {
		return launch{}, err
	}
	operands, outputs, err := c.updateOperands(s, span)
	if err != nil {
		return launch{}, err
	}
	args := c.newUpdateArgs(s, span, toUpdate)
	l := launch{k, device.Launch{Args: args, Buffers: append(operands, outputs...)}}
	if w := k.Workspace(); w > 0 {
		l.launch.Workspace, err = c.region(s, plan.Place{Region: plan.InFrame}, w)
	}
	return l, err
}

// updateOperands are weight (or master), gradient, states and clip factor; then what is
// written: weight, states, and where there is a master the weight computed from it.
func (c *compiler) updateOperands(s *plan.Instruction, span plan.Span) (in, out []device.Buffer, err error) {
	get := func(region plan.Region, offset, bytes int64) device.Buffer {
		b, bad := c.region(s, plan.Place{Region: region, Offset: offset}, bytes)
		if bad != nil && err == nil {
			err = bad
		}
		return b
	}
	o, piece, n := c.plan.Optimizer, c.plan.Slabs[s.Slab].Pieces[s.Piece], span.Elements()
	weight := get(plan.InWeight, span.Offset, span.Type.Bytes(n))
	main, grad := weight, o.GradTypeOf(span.Type)
	if o.HasMaster(span.Type) {
		main = get(plan.InMaster, 4*(span.Element-piece.From), 4*n)
	}
	var gradient device.Buffer
	if o.Held {
		gradient = get(plan.InState, span.States[0].Offset, span.States[0].Type.Bytes())
	} else {
		gradient = get(plan.InGrad, grad.Bytes(span.Element), grad.Bytes(n))
	}
	in, out = []device.Buffer{main, gradient}, []device.Buffer{main}
	for _, state := range o.RuleStates(span) {
		b := get(plan.InState, state.Offset, state.Type.Bytes())
		in, out = append(in, b), append(out, b)
	}
	in = append(in, get(plan.InClip, 0, 8))
	if o.HasMaster(span.Type) {
		out = append(out, weight)
	}
	return in, out, err
}

// updateKernel finds the kernel of an update, one for all that are the same call. A slab in
// small pieces has very many updates, so that finding a kernel makes no garbage.
func (c *compiler) updateKernel(dev int, s plan.Span) (device.Kernel, error) {
	key := append(c.key[:0], byte(dev), byte(s.Type), 0)
	if s.Momentum > 0 {
		key[2] = 1
	}
	for _, n := range s.Shape {
		key = binary.AppendVarint(key, n)
	}
	for _, state := range s.States {
		key = append(key, byte(state.Type.DType))
	}
	c.key = key
	if k, ok := c.updates[string(key)]; ok {
		return k, nil
	}
	call, err := c.plan.Optimizer.Call(s)
	if err != nil {
		return nil, err
	}
	k, err := c.devices[dev].Kernel(call)
	if err == nil {
		c.updates[string(key)] = k
	}
	return k, err
}

// joinedUpdate updates a piece with one kernel, the same for all pieces with the same
// layout.
func (c *compiler) joinedUpdate(s *plan.Instruction, j device.Joiner) (func(device.Queue) error, error) {
	slab := &c.plan.Slabs[s.Slab]
	on := updateOn{s.Device, string(appendLayout(nil, slab, slab.Pieces[s.Piece]))}
	if issue, ok := c.joinedUpdates[on]; ok {
		return issue, nil
	}
	k, err := c.joinedPiece(s, joinedPiece{on.layout, c.plan.Devices[s.Device].Name}, j)
	if err != nil {
		return nil, err
	}
	issue := c.launches([]launch{{kernel: k}})
	c.joinedUpdates[on] = issue
	return issue, nil
}

// joinedPiece is the kernel of an update of a piece on a device that joins.
func (c *compiler) joinedPiece(s *plan.Instruction, key joinedPiece, j device.Joiner) (device.Kernel, error) {
	if k, ok := c.known.updates[key]; ok {
		return k, nil
	}
	var kernels []device.Kernel
	slab := &c.plan.Slabs[s.Slab]
	for _, span := range c.plan.Optimizer.Spans(slab, slab.Pieces[s.Piece]) {
		k, err := c.updateKernel(s.Device, span)
		if err != nil {
			return nil, fmt.Errorf("params from %s on: %w", span.Name, err)
		}
		kernels = append(kernels, k)
	}
	k := j.Join(kernels)
	c.known.updates[key] = k
	return k, nil
}

// updateOn is an update of one layout on a device.
type updateOn struct {
	device int
	layout string
}

// appendLayout writes down everything of a piece that decides how long its update takes.
func appendLayout(key []byte, s *plan.Slab, piece plan.Piece) []byte {
	for i := range s.Params {
		p := &s.Params[i]
		if p.Frozen() || p.Element >= piece.To {
			continue
		}
		for _, n := range append([]int64{int64(p.Type.DType), p.Offset, p.Element - piece.From, int64(len(p.States))}, p.Type.Shape...) {
			key = binary.AppendVarint(key, n)
		}
		for _, state := range p.States {
			key = append(key, byte(state.Type.DType), byte(len(state.Type.Shape)))
		}
		if p.Decay {
			key = append(key, 1)
		}
		if p.Momentum > 0 {
			key = append(key, 2)
		}
		key = binary.AppendVarint(key, int64(p.Group))
	}
	return binary.AppendVarint(key, piece.Elements())
}
