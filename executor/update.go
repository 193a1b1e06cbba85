package executor

import (
	"fmt"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/shape"
)

// prepareUpdate: the optimizer's kernel on runs of params that lie behind each
// other and share their weight decay.
func (e *Executor) prepareUpdate(s *plan.Step) (func(device.Queue) error, error) {
	u := e.plan.Update
	if u == nil {
		return nil, fmt.Errorf("the plan has no optimizer")
	}
	var list []launch
	slab := e.plan.Slabs[s.Slab]
	for _, r := range updateRuns(slab.Params, slab.Pieces[s.Piece]) {
		l, err := e.updateLaunch(s, u, r)
		if err != nil {
			return nil, fmt.Errorf("params from %s on: %w", r.name, err)
		}
		list = append(list, l)
	}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}

// updateRun is a stretch of elements one launch updates.
type updateRun struct {
	name    string
	offset  int64 // of the weights, in bytes
	element int64 // of gradient, master and moments
	n       int64
	decay   bool
	dtype   dtype.Type
}

// updateRuns lists the parts of params inside a piece, and joins those that are
// neighbours in weights and in state.
func updateRuns(params []plan.SlabParam, piece plan.Piece) []updateRun {
	var runs []updateRun
	for _, p := range params {
		if p = within(p, piece); p.Frozen() {
			continue
		}
		n := p.Type.Shape.Elements()
		if len(runs) > 0 {
			last := &runs[len(runs)-1]
			if last.decay == p.Decay && last.dtype == p.Type.DType && last.element+last.n == p.Element && last.offset+last.dtype.Bytes(last.n) == p.Offset {
				last.n += n
				continue
			}
		}
		runs = append(runs, updateRun{p.Name, p.Offset, p.Element, n, p.Decay, p.Type.DType})
	}
	return runs
}

// within is the part of a param inside a piece, as a vector; frozen if there is none.
func within(p plan.SlabParam, piece plan.Piece) plan.SlabParam {
	if p.Frozen() {
		return p
	}
	from, to := max(p.Element, piece.From), min(p.Element+p.Type.Shape.Elements(), piece.To)
	if from >= to {
		p.Element = -1
		return p
	}
	p.Offset += p.Type.DType.Bytes(from - p.Element)
	p.Element, p.Type.Shape = from, shape.Shape{to - from}
	return p
}

func (e *Executor) updateLaunch(s *plan.Step, u *plan.Update, r updateRun) (launch, error) {
	full := op.Type{DType: dtype.F32, Shape: shape.Shape{r.n}}
	grad := op.Type{DType: u.Grad, Shape: full.Shape}
	types := []op.Type{full, grad}
	for range u.Moments {
		types = append(types, full)
	}
	types = append(types, op.Type{DType: dtype.F32, Shape: shape.Shape{2}})
	call, err := op.Make(u.Rule, u.Attr, types...)
	if err != nil {
		return launch{}, err
	}
	k, err := e.devices[s.Device].Kernel(call)
	if err != nil {
		return launch{}, err
	}
	operands, outputs, err := e.updateOperands(s, u, r)
	if err != nil {
		return launch{}, err
	}
	args := &op.Args{}
	e.updates = append(e.updates, updateArgs{args, r.decay})
	return launch{k, device.Launch{Args: args, Buffers: append(operands, outputs...)}}, nil
}

// updateOperands: weight (or master), gradient, moments, clip; then what is
// written: weight, moments, and the computed-with copy when there is a master.
func (e *Executor) updateOperands(s *plan.Step, u *plan.Update, r updateRun) (in, out []device.Buffer, err error) {
	get := func(region plan.Region, offset, bytes int64) device.Buffer {
		b, bad := e.region(s, plan.Place{Region: region, Offset: offset}, bytes)
		if bad != nil && err == nil {
			err = bad
		}
		return b
	}
	piece := e.plan.Slabs[s.Slab].Pieces[s.Piece]
	weight := get(plan.InWeight, r.offset, r.dtype.Bytes(r.n))
	main := weight
	if u.Attr.To != dtype.Invalid {
		main = get(plan.InMaster, 4*(r.element-piece.From), 4*r.n)
	}
	in, out = []device.Buffer{main, get(plan.InGrad, u.Grad.Bytes(r.element), u.Grad.Bytes(r.n))}, []device.Buffer{main}
	for i := range u.Moments {
		m := get(plan.InMoment, 4*(int64(i)*piece.Elements()+r.element-piece.From), 4*r.n)
		in, out = append(in, m), append(out, m)
	}
	in = append(in, get(plan.InClip, 0, 8))
	if u.Attr.To != dtype.Invalid {
		out = append(out, weight)
	}
	return in, out, err
}
