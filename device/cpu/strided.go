package cpu

import (
	"spillway/device"
	"spillway/op"
	"spillway/shape"
)

func init() {
	for _, kind := range []op.Kind{op.Reshape, op.Permute, op.Expand, op.Slice, op.Pad} {
		RegisterNative(kind, moved, nil)
	}
	Register(op.Binary, paired)
	Register(op.Compare, paired)
	Register(op.BinaryGrad, pairedGrad)
	RegisterNative(op.Gather, gather, nil)
	Register(op.GatherGrad, gatherGrad)
}

// walked makes a program that goes over the rows of a walk: do gets where a row begins in each tensor.
func walked(w shape.Walk, workers int, set func(l *device.Launch), do func(at []int64)) Program {
	room := make([][16]int64, workers) // as much as a cache line or more
	work := rowsOf(w.Rows(), w.Dims.Last(), func(worker, from, to int) {
		at := room[worker][:len(w.Strides)]
		w.Row(int64(from), at)
		for i := from; i < to; i++ {
			if i > from {
				w.Next(int64(i), at)
			}
			do(at)
		}
	})
	return work.program(0, set)
}

// moved copies elements of any type to other places.
func moved(c op.Call, workers int) Program {
	if c.In[0].DType.Bytes(1) == 2 {
		return movedAs[uint16](c, workers)
	}
	return movedAs[uint32](c, workers)
}

func movedAs[E uint16 | uint32](c op.Call, workers int) Program {
	w, from, to := c.CopyWalk()
	last := len(w.Dims) - 1
	n, step, toStep := w.Dims[last], w.Strides[0][last], w.Strides[1][last]
	var x, y []E
	set := func(l *device.Launch) {
		x, y = view[E](l.Buffers[0]), view[E](l.Buffers[1])
		if c.Kind == op.Pad {
			clear(y)
		}
		x, y = x[from:], y[to:]
	}
	return walked(w, workers, set, func(at []int64) {
		i, j := at[0], at[1]
		switch {
		case step == 1 && toStep == 1:
			copy(y[j:j+n], x[i:i+n])
		case step == 0 && toStep == 1:
			row, v := y[j:j+n], x[i]
			for k := range row {
				row[k] = v
			}
		case toStep == 1:
			row := y[j : j+n]
			for k := range row {
				row[k] = x[i]
				i += step
			}
		default:
			for range n {
				y[j] = x[i]
				i, j = i+step, j+toStep
			}
		}
	})
}

// paired is a function of two numbers, row by row.
func paired(c op.Call, workers int) Program {
	w, f := c.BroadcastWalk(), pairOf(c.Attr.Func2)
	last := len(w.Dims) - 1
	n, xStep, yStep := w.Dims[last], int(w.Strides[0][last]), int(w.Strides[1][last])
	o := &triple{}
	return walked(w, workers, o.set, func(at []int64) { f(o.z[at[2]:at[2]+n], o.x[at[0]:], o.y[at[1]:], xStep, yStep) })
}

// pairOf is the loop of a function: z[i] = f(x[i·xStep], y[i·yStep]).
func pairOf(f op.Func2) func(z, x, y []float32, xStep, yStep int) {
	switch f {
	case op.Plus:
		return func(z, x, y []float32, xStep, yStep int) {
			for i, j, k := 0, 0, 0; i < len(z); i, j, k = i+1, j+xStep, k+yStep {
				z[i] = x[j] + y[k]
			}
		}
	case op.Minus:
		return func(z, x, y []float32, xStep, yStep int) {
			for i, j, k := 0, 0, 0; i < len(z); i, j, k = i+1, j+xStep, k+yStep {
				z[i] = x[j] - y[k]
			}
		}
	case op.Times:
		return func(z, x, y []float32, xStep, yStep int) {
			for i, j, k := 0, 0, 0; i < len(z); i, j, k = i+1, j+xStep, k+yStep {
				z[i] = x[j] * y[k]
			}
		}
	case op.Divide:
		return func(z, x, y []float32, xStep, yStep int) {
			for i, j, k := 0, 0, 0; i < len(z); i, j, k = i+1, j+xStep, k+yStep {
				z[i] = x[j] / y[k]
			}
		}
	}
	return func(z, x, y []float32, xStep, yStep int) {
		for i, j, k := 0, 0, 0; i < len(z); i, j, k = i+1, j+xStep, k+yStep {
			z[i] = float32(f.Value(float64(x[j]), float64(y[k])))
		}
	}
}

func pairedGrad(c op.Call, workers int) Program {
	w, a := c.BroadcastWalk(), c.Attr
	last := len(w.Dims) - 1
	n, xStep, yStep := w.Dims[last], w.Strides[0][last], w.Strides[1][last]
	var x, y, dz, out []float32
	set := func(l *device.Launch) { x, y, dz, out = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3) }
	return walked(w, workers, set, func(at []int64) {
		i, j := at[0], at[1]
		for k := at[2]; k < at[2]+n; k++ {
			slope := float32(0)
			switch {
			case a.Func2 == op.Minus && a.Second:
				slope = -1
			case a.Func2 == op.Times && a.Second:
				slope = x[i]
			case a.Func2 == op.Times:
				slope = y[j]
			default:
				slope = float32(a.Func2.Slope(float64(x[i]), float64(y[j]), a.Second))
			}
			if out[k] = 0; slope != 0 {
				out[k] = dz[k] * slope
			}
			i, j = i+xStep, j+yStep
		}
	})
}

// gather copies elements of any type.
func gather(c op.Call, _ int) Program {
	if c.In[0].DType.Bytes(1) == 2 {
		return gatherAs[uint16](c)
	}
	return gatherAs[uint32](c)
}

func gatherAs[E uint16 | uint32](c op.Call) Program {
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	_, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	var x, y []E
	var ids []int32
	set := func(l *device.Launch) {
		x, ids, y = view[E](l.Buffers[0]), view[int32](l.Buffers[1]), view[E](l.Buffers[2])
	}
	return elements(c, set, func(from, to int) {
		for i := int64(from); i < int64(to); i++ {
			y[i] = x[(i/(m*inner)*n+known(ids, i, n, 1))*inner+i%inner]
		}
	})
}

// known is the id at a place, which must be one of n; ids are the operand of that number.
func known(ids []int32, place, n int64, operand int) int64 {
	id := int64(ids[place])
	if uint64(id) >= uint64(n) {
		panic(badID{operand, int(place)})
	}
	return id
}

// gatherGrad adds in the order of places, a part of the outer dimensions per piece.
func gatherGrad(c op.Call, _ int) Program {
	n := c.Attr.Length
	outer, m, inner := c.In[0].Shape.Around(c.Attr.Axis, 1)
	var dy, dx []float32
	var ids []int32
	work := rowsOf(outer, max(n, m)*inner, func(_, from, to int) {
		clear(dx[int64(from)*n*inner : int64(to)*n*inner])
		for i := int64(from) * m * inner; i < int64(to)*m*inner; i++ {
			dx[(i/(m*inner)*n+known(ids, i, n, 0))*inner+i%inner] += dy[i]
		}
	})
	return work.program(0, func(l *device.Launch) { ids, dy, dx = view[int32](l.Buffers[0]), F32(l, 1), F32(l, 2) })
}
