package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.Pool, pool)
	Register(op.PoolGrad, poolGrad)
	Register(op.Resample, resample)
	Register(op.ResampleGrad, resample)
}

// ranges are the windows of pooling along each dimension.
type ranges struct {
	op.Windows
	along [3][]span
}

type span struct{ first, end, step, counted int }

func rangesOf(c op.Call) ranges {
	r := ranges{Windows: c.Windows()}
	for d := range r.along {
		for o := range r.Out[d] {
			first, end, step, counted := r.Range(d, o)
			r.along[d] = append(r.along[d], span{int(first), int(end), int(step), int(counted)})
		}
	}
	return r
}

// places calls f with the rows of x that the window of row i of y holds.
func (r *ranges) places(i int, f func(row int)) (counted int) {
	w := i % int(r.Out[2])
	i /= int(r.Out[2])
	h := i % int(r.Out[1])
	i /= int(r.Out[1])
	a, b, c := r.along[0][i%int(r.Out[0])], r.along[1][h], r.along[2][w]
	base := i / int(r.Out[0]) * int(r.In[0])
	for z := a.first; z < a.end; z += a.step {
		for y := b.first; y < b.end; y += b.step {
			for x := c.first; x < c.end; x += c.step {
				f(((base+z)*int(r.In[1])+y)*int(r.In[2]) + x)
			}
		}
	}
	return a.counted * b.counted * c.counted
}

func pool(c op.Call, _ int) Program {
	r, o, channels := rangesOf(c), &pair{}, int(c.Windows().C)
	largest := c.Attr.Reduction == op.ReduceMax
	work := rowsOf(c.Out[0].Shape.Rows(), 4*int64(channels), func(_, from, to int) {
		for i := from; i < to; i++ {
			y, fresh := o.y[i*channels:][:channels], true
			counted := r.places(i, func(row int) {
				x := o.x[row*channels:][:channels]
				switch {
				case fresh:
					copy(y, x)
					fresh = false
				case largest:
					for k, v := range x {
						y[k] = max(y[k], v)
					}
				default:
					kernel.AddScaled(y, x, 1)
				}
			})
			if !largest {
				kernel.Scale(y, y, 1/float32(counted))
			}
		}
	})
	return work.program(0, o.set)
}

// poolGrad works on one sample per piece: its windows give to places in order.
func poolGrad(c op.Call, workers int) Program {
	r, channels := rangesOf(c), int(c.Windows().C)
	largest := c.Attr.Reduction == op.ReduceMax
	inside, outside := int(r.In[0]*r.In[1]*r.In[2])*channels, int(r.Out[0]*r.Out[1]*r.Out[2])
	var x, dy, dx []float32
	first, tops := make([][]int32, workers), make([][]float32, workers) // where in its sample the largest of each channel is, and it
	for i := range first {
		first[i], tops[i] = make([]int32, channels), make([]float32, channels)
	}
	work := &rows{n: int(r.B), step: 1, do: func(worker, b, _ int) {
		clear(dx[b*inside:][:inside])
		at, top := first[worker], tops[worker]
		for i := b * outside; i < (b+1)*outside; i++ {
			g := dy[i*channels:][:channels]
			if !largest {
				share := 1 / float32(r.places(i, func(int) {}))
				r.places(i, func(row int) { kernel.AddScaled(dx[row*channels:][:channels], g, share) })
				continue
			}
			fresh := true
			r.places(i, func(row int) {
				line, place := x[row*channels:][:channels], int32(row-b*inside/channels)
				if !fresh {
					kernel.Largest(top, at, line, place)
					return
				}
				copy(top, line)
				for k := range at {
					at[k] = place
				}
				fresh = false
			})
			for k, v := range g {
				dx[b*inside+int(at[k])*channels+k] += v
			}
		}
	}}
	return work.program(0, func(l *device.Launch) {
		x, dy, dx = F32(l, 0), F32(l, len(c.In)-1), F32(l, len(c.In))
	})
}

// resample reads lines of places along the axis, whole rows of what lies behind it at a time; the gradient
// gives them back in order.
func resample(c op.Call, _ int) Program {
	back := c.Kind == op.ResampleGrad
	t := c.In[0]
	if back {
		t = c.Out[0]
	}
	outer, n, inner := t.Shape.Around(c.Attr.Axis, 1)
	taps := c.Attr.Taps(n)
	made, size, o := len(taps), int(inner), &pair{}
	work := rowsOf(outer, max(n, int64(made))*inner, func(_, from, to int) {
		for b := from; b < to; b++ {
			if back {
				clear(o.y[b*int(n)*size:][:int(n)*size])
			}
			for i, list := range taps {
				for k, tap := range list {
					old, fresh, w := (b*int(n)+int(tap.From))*size, (b*made+i)*size, float32(tap.Weight)
					switch {
					case back:
						kernel.AddScaled(o.y[old:][:size], o.x[fresh:], w)
					case k == 0:
						kernel.Scale(o.y[fresh:][:size], o.x[old:], w)
					default:
						kernel.AddScaled(o.y[fresh:][:size], o.x[old:], w)
					}
				}
			}
		}
	})
	return work.program(0, o.set)
}
