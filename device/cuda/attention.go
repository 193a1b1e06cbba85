package cuda

import (
	"spillway/op"
)

func rope(d *Device, c op.Call) (program, error) {
	t, half := c.In[0].DType, c.In[2].Shape[0]
	width, scale := c.In[0].Shape.Last()/c.Attr.Heads, c.Attr.Scale
	if scale == 0 {
		scale = 1
	}
	name, lane := "rope", lanes(t)
	if half%lane != 0 || width%lane != 0 {
		name, lane = "ropeOne", 1
	}
	size := min(threads, max(32, parts(c.Attr.Heads*half/lane, 32)*32))
	return just(d.grid(of("rope", t), name, [3]int64{c.In[0].Shape.Rows(), 1, 1}, [3]int64{size, 1, 1}, 8*half,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(c.Attr.Heads), i64(width), i64(half), f32(scale), flag(c.Attr.Inverse)))
}

// tile is how many queries and keys the plain kernels take at once, by so many threads.
const (
	tile        = 32
	tileThreads = 128
)

// heads is a call of attention with its sizes told apart.
type heads struct {
	c           op.Call
	b, t, s, d  int64
	width       int64 // d as the kernels are compiled for
	optional    int   // the first optional operand
	heads, keys int64
}

func headsOf(c op.Call, optional int) heads {
	q, k := c.In[0].Shape, c.In[1].Shape
	h := heads{c: c, b: q[0], t: q[1], s: k[1], d: q[2] / c.Attr.Heads, optional: optional, heads: c.Attr.Heads, keys: c.Attr.KVHeads}
	h.width = parts(h.d, 16) * 16
	return h
}

func (h heads) unit() unit { return unit{file: "attention", element: h.c.In[0].DType, head: h.width} }

// sight lists the parameters of sight.h.
func (h heads) sight() []arg {
	a, next := h.c.Attr, h.optional
	pick := func(has bool) arg {
		if !has {
			return arg{}
		}
		next++
		return buffer(next - 1)
	}
	segments, keyMask, mask := pick(a.Segments), pick(a.KeyMask), pick(a.Mask)
	return []arg{segments, keyMask, mask, i64(h.t), i64(h.s), i64(h.heads), i64(h.keys), i64(h.d), f32(a.Scale),
		flag(a.Causal), i64(a.Window), f32(a.Prob), f32(1 / (1 - a.Prob)), i64(int64(a.Stream)), key(), row()}
}

// shared is the memory of so many tiles of numbers and of weights, in bytes.
func (h heads) shared(tiles, weights int64) int64 {
	return 4 * (tiles*tile*(h.width+1) + weights*tile*(tile+1))
}

// launch prepares a plain kernel over rows in tiles.
func (h heads) launch(d *Device, name string, rows, lines, shared int64, args ...arg) (*launch, error) {
	return d.grid(h.unit(), name, [3]int64{parts(rows, tile), lines, h.b}, [3]int64{tileThreads, 1, 1}, shared, append(args, h.sight()...)...)
}

func attention(d *Device, c op.Call) (program, error) {
	h := headsOf(c, 3)
	o := len(c.In)
	return just(h.launch(d, "attention", h.t, h.heads, h.shared(3, 1), buffer(0), buffer(1), buffer(2), buffer(o), buffer(o+1)))
}

// attentionGrad: operands q, k, v, o, lse, do. One kernel sums over keys and one over
// queries, so that no two threads add to the same element.
func attentionGrad(d *Device, c op.Call) (program, error) {
	h := headsOf(c, 6)
	out, rows := len(c.In), h.b*h.t*h.heads
	operands := []arg{buffer(0), buffer(1), buffer(2), buffer(4), buffer(5), work(0)}
	return sequence(4*rows,
		func() (*launch, error) {
			return d.grid(h.unit(), "attentionDelta", [3]int64{parts(rows, 8), 1, 1}, [3]int64{32, 8, 1}, 0,
				buffer(3), buffer(5), work(0), i64(rows), i64(h.t), i64(h.heads), i64(h.d))
		},
		func() (*launch, error) {
			return h.launch(d, "attentionGradQueries", h.t, h.heads, h.shared(4, 1), append(operands, buffer(out))...)
		},
		func() (*launch, error) {
			return h.launch(d, "attentionGradKeys", h.s, h.keys, h.shared(4, 2), append(operands, buffer(out+1), buffer(out+2))...)
		})
}
