package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// formulaWidth is how many elements a formula computes at a time: a block of 8-bit states.
const formulaWidth = quant.StateBlock

// formulaKernel is the update of an optimizer that is given as a formula: node after node, each over some
// elements.
type formulaKernel struct {
	f       *op.Formula
	w       *weight
	g       *gradient
	kept    []*state
	opened  [][][]float32 // by worker and state: what of it is changed
	spared  [][]bool      // by worker
	flush   []bool
	coded   bool
	copied  *weightCopy
	scratch [][][]float32 // by worker and value
	clip    float32
	scalars op.Scalars
	norms   []float32   // by node
	sums    [][]float64 // by norm and piece of work
}

// formula prepares an update whose kind has a formula.
func formula(c op.Call, workers int) Program {
	f := op.FormulaOf(c.Kind)
	k := &formulaKernel{f: f, w: newWeight(c.In[0].DType, workers), g: newGradient(c.In[1].DType, workers), copied: newWeightCopy(c), norms: make([]float32, len(f.Nodes))}
	for _, t := range c.In[2 : len(c.In)-1] {
		k.kept, k.flush = append(k.kept, newState(t, workers)), append(k.flush, flushesDenormals(t.DType))
		k.coded = k.coded || t.DType.Block()
	}
	for range workers {
		values := make([][]float32, f.First()+len(f.Nodes))
		for i := range values {
			values[i] = make([]float32, formulaWidth)
		}
		k.scratch, k.opened, k.spared = append(k.scratch, values), append(k.opened, make([][]float32, len(k.kept))), append(k.spared, make([]bool, formulaWidth))
	}
	n, scalars, norms := int(c.Out[0].Shape.Elements()), scalarsOf(c.Kind, f.Scalars...), f.Norms()
	pieces := (n + grain - 1) / grain
	each := func(do func(worker, from, to int)) *rows {
		return rowsOf(int64(n), 1, func(worker, from, to int) {
			for i := from; i < to; i += formulaWidth {
				do(worker, i, min(i+formulaWidth, to))
			}
		})
	}
	sum, step := each(k.sum), each(k.step)
	return Program{Workspace: int64(8 * pieces * len(norms)), Run: func(p *kernel.Pool, l *device.Launch) {
		k.w.set(l)
		k.g.set(l.Buffers[1])
		k.copied.set(l)
		k.clip, k.scalars = F32(l, len(c.In)-1)[0], scalars(l)
		for i, one := range k.kept {
			one.set(l, 2+i, i)
		}
		if !(k.clip > 0) {
			k.copied.write(k.w.wide, 0, n)
			return
		}
		if len(norms) > 0 {
			all := view[float64](l.Workspace)[:pieces*len(norms)]
			clear(all)
			k.sums = k.sums[:0]
			for i := range norms {
				k.sums = append(k.sums, all[i*pieces:(i+1)*pieces])
			}
			sum.start(p)
			for i, node := range norms {
				k.norms[node] = float32(math.Sqrt(total(k.sums[i])))
			}
		}
		step.start(p)
	}}
}

// compute computes the first nodes of a formula for some elements. It gives the weights and states to be
// written, and marks elements whose gradient is not finite where that would spoil a block of codes.
func (k *formulaKernel) compute(worker, from, to, nodes int) (values [][]float32, w []float32, kept [][]float32, spared []bool) {
	f, n := k.f, to-from
	values = k.scratch[worker]
	w = k.w.open(worker, from, to)
	copy(values[0], w)
	k.g.each(worker, from, to, func(i, j int, g []float32) {
		for at, v := range g {
			values[1][i-from+at] = float32(v * k.clip)
		}
	})
	kept = k.opened[worker]
	for i, one := range k.kept {
		kept[i] = one.open(worker, from, to)
		copy(values[2+i], kept[i])
	}
	for i := range f.Scalars {
		setAll(values[2+f.States+i][:n], k.scalars[i])
	}
	for i := range f.Nodes[:nodes] {
		if node := &f.Nodes[i]; node.Do == op.NumNorm {
			setAll(values[f.First()+i][:n], k.norms[i])
		} else {
			k.node(node, values[f.First()+i][:n], values[node.In[0]][:n], values[node.In[1]][:n], values[node.In[2]][:n])
		}
	}
	if k.coded {
		for i, g := range values[1][:n] {
			if !finite(g) {
				if spared == nil {
					spared = k.spared[worker][:n]
					clear(spared)
				}
				spared[i] = true
			}
		}
	}
	return values, w, kept, spared
}

func setAll(list []float32, v float32) {
	for i := range list {
		list[i] = v
	}
}

// node computes one operation over some elements; the common ones have loops of their own.
func (k *formulaKernel) node(n *op.FormulaNode, out, x, y, z []float32) {
	y, z = y[:len(x)], z[:len(x)]
	switch n.Do {
	case op.NumConst:
		setAll(out, n.Const)
	case op.NumAdd:
		for i := range x {
			out[i] = x[i] + y[i]
		}
	case op.NumSub:
		for i := range x {
			out[i] = x[i] - y[i]
		}
	case op.NumMul:
		for i := range x {
			out[i] = x[i] * y[i]
		}
	case op.NumDiv:
		for i := range x {
			out[i] = x[i] / y[i]
		}
	case op.NumFMA:
		for i := range x {
			out[i] = dtype.FMA(x[i], y[i], z[i])
		}
	case op.NumSqrt:
		for i := range x {
			out[i] = float32(math.Sqrt(float64(x[i])))
		}
	default:
		flush := func(state int) bool { return k.flush[state] }
		for i := range x {
			out[i] = n.Compute(x[i], y[i], z[i], flush)
		}
	}
}

// sum adds the squares of what norms are of.
func (k *formulaKernel) sum(worker, from, to int) {
	norms := k.f.Norms()
	values, _, _, spared := k.compute(worker, from, to, norms[len(norms)-1])
	for i, node := range norms {
		sum := 0.0
		for at, v := range values[k.f.Nodes[node].In[0]][:to-from] {
			if spared == nil || !spared[at] {
				sum += float64(v) * float64(v)
			}
		}
		k.sums[i][from/grain] += sum
	}
}

// step computes and writes weights and states.
func (k *formulaKernel) step(worker, from, to int) {
	values, w, kept, spared := k.compute(worker, from, to, len(k.f.Nodes))
	for i := range w {
		if spared == nil || !spared[i] {
			w[i] = values[k.f.NewWeight][i]
		}
	}
	k.w.close(worker, from, to)
	for s, part := range kept {
		for i := range part {
			if part[i] = values[k.f.NewStates[s]][i]; spared != nil && spared[i] {
				part[i] = 0
			}
		}
		k.kept[s].close(worker, from, to)
	}
	k.copied.write(k.w.wide, from, to)
}
