package executor

import (
	"encoding/binary"
	"fmt"

	"spillway/device"
	"spillway/op"
	"spillway/plan"
)

// prepareUpdate: the optimizer's kernel on the stretches of a piece.
func (e *Executor) prepareUpdate(s *plan.Instruction) (func(device.Queue) error, error) {
	u := e.plan.Optimizer
	if u == nil {
		return nil, fmt.Errorf("the plan has no optimizer")
	}
	if j, ok := e.devices[s.Device].(device.Joiner); ok {
		return e.joinedUpdate(s, j)
	}
	var list []launch
	slab := &e.plan.Slabs[s.Slab]
	for _, stretch := range u.Spans(slab, slab.Pieces[s.Piece]) {
		l, err := e.updateLaunch(s, u, stretch)
		if err != nil {
			return nil, fmt.Errorf("params from %s on: %w", stretch.Name, err)
		}
		list = append(list, l)
	}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}

// joinedUpdate updates a piece with one kernel, the same for all pieces that are laid
// out alike.
func (e *Executor) joinedUpdate(s *plan.Instruction, j device.Joiner) (func(device.Queue) error, error) {
	u, slab := e.plan.Optimizer, &e.plan.Slabs[s.Slab]
	key := updateOn{s.Device, string(appendLayout(nil, slab, slab.Pieces[s.Piece]))}
	if issue, ok := e.joinedUpdates[key]; ok {
		return issue, nil
	}
	var kernels []device.Kernel
	for _, stretch := range u.Spans(slab, slab.Pieces[s.Piece]) {
		call, err := u.Call(stretch)
		if err != nil {
			return nil, fmt.Errorf("params from %s on: %w", stretch.Name, err)
		}
		k, err := e.devices[s.Device].Kernel(call)
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, k)
	}
	list := []launch{{kernel: j.Join(kernels)}}
	e.joinedUpdates[key] = func(q device.Queue) error { return e.issue(q, list) }
	return e.joinedUpdates[key], nil
}

// updateOn is an update of one layout on a device.
type updateOn struct {
	device int
	layout string
}

// appendLayout writes down everything of a piece that tells how long its update takes.
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
	}
	return binary.AppendVarint(key, piece.Elements())
}

func (e *Executor) updateLaunch(s *plan.Instruction, u *plan.Optimizer, stretch plan.Span) (launch, error) {
	k, err := e.updateKernel(s.Device, u, stretch)
	if err != nil {
		return launch{}, err
	}
	operands, outputs, err := e.updateOperands(s, u, stretch)
	if err != nil {
		return launch{}, err
	}
	args := &op.Args{}
	e.updates = append(e.updates, updateArgs{args, stretch.Decay, s.Slab, stretch.Element, s.Deferred})
	l := launch{k, device.Launch{Args: args, Buffers: append(operands, outputs...)}}
	if w := k.Workspace(); w > 0 {
		l.launch.Workspace, err = e.region(s, plan.Place{Region: plan.InFrame}, w)
	}
	return l, err
}

// updateKernel is the kernel of an update, one for all that are the same call: a slab in
// small pieces has very many, so that looking for one makes no garbage.
func (e *Executor) updateKernel(dev int, u *plan.Optimizer, s plan.Span) (device.Kernel, error) {
	key := append(e.keyBuffer[:0], byte(dev), byte(s.Type))
	for _, n := range s.Shape {
		key = binary.AppendVarint(key, n)
	}
	for _, state := range s.States {
		key = append(key, byte(state.Type.DType))
	}
	e.keyBuffer = key
	if k, ok := e.updateKernels[string(key)]; ok {
		return k, nil
	}
	call, err := u.Call(s)
	if err != nil {
		return nil, err
	}
	k, err := e.devices[dev].Kernel(call)
	if err == nil {
		e.updateKernels[string(key)] = k
	}
	return k, err
}

// updateOperands: weight (or master), gradient, states, clip; then what is
// written: weight, states, and the computed-with copy when there is a master.
func (e *Executor) updateOperands(s *plan.Instruction, u *plan.Optimizer, stretch plan.Span) (in, out []device.Buffer, err error) {
	get := func(region plan.Region, offset, bytes int64) device.Buffer {
		b, bad := e.region(s, plan.Place{Region: region, Offset: offset}, bytes)
		if bad != nil && err == nil {
			err = bad
		}
		return b
	}
	piece, n := e.plan.Slabs[s.Slab].Pieces[s.Piece], stretch.Elements()
	weight := get(plan.InWeight, stretch.Offset, stretch.Type.Bytes(n))
	main, grad := weight, u.GradTypeOf(stretch.Type)
	if u.HasMaster(stretch.Type) {
		main = get(plan.InMaster, 4*(stretch.Element-piece.From), 4*n)
	}
	in, out = []device.Buffer{main, get(plan.InGrad, grad.Bytes(stretch.Element), grad.Bytes(n))}, []device.Buffer{main}
	for _, state := range stretch.States {
		b := get(plan.InState, state.Offset, state.Type.Bytes())
		in, out = append(in, b), append(out, b)
	}
	in = append(in, get(plan.InClip, 0, 8))
	if u.HasMaster(stretch.Type) {
		out = append(out, weight)
	}
	return in, out, err
}
