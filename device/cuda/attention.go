package cuda

import (
	"cmp"
	"errors"
	"math/bits"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.Rope, rope)
	register(op.Attention, attention)
	register(op.AttentionGrad, attentionGrad)
	register(op.AttentionMaskGrad, attentionMaskGrad)
	register(op.JoinedAttention, joinedAttention)
	register(op.JoinedAttentionGrad, joinedAttentionGrad)
}

func rope(d *Device, c op.Call) (program, error) {
	t, half := c.In[0].DType, c.In[2].Shape[0]
	width, scale := c.In[0].Shape.Last()/c.Attr.Heads, cmp.Or(c.Attr.Scale, 1)
	name, lane := "rope", elementsPerLoad(t)
	if half%lane != 0 || width%lane != 0 {
		name, lane = "ropeOne", 1
	}
	size := min(threads, max(32, ceilDiv(c.Attr.Heads*half/lane, 32)*32))
	return single(d.grid(unitFor("rope", t), name, [3]int64{c.In[0].Shape.Rows(), 1, 1}, [3]int64{size, 1, 1}, 8*half,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(c.Attr.Heads), i64(width), i64(half), f32(scale), flag(c.Attr.Inverse)))
}

// heads is a call of attention with its sizes by name.
type heads struct {
	c           op.Call
	b, t, s, d  int64
	heads, keys int64
	optional    int // the first optional operand
	// joined: q, k and v are columns of one operand, and so are their gradients. The call is then the one that it
	// stands for.
	joined bool
}

func headsOf(c op.Call, optional int) heads {
	q, k := c.In[0].Shape, c.In[1].Shape
	return heads{c: c, b: q[0], t: q[1], s: k[1], d: q[2] / c.Attr.Heads, optional: optional, heads: c.Attr.Heads, keys: c.Attr.KVHeads}
}

// operand is where operand i of the call is.
func (h heads) operand(i int) arg {
	switch {
	case !h.joined:
		return buffer(i)
	case i < 3:
		return bufferAt(0, h.part(i))
	}
	return buffer(i - 2)
}

// output is where output i of the call is.
func (h heads) output(i int) arg {
	switch {
	case !h.joined:
		return buffer(len(h.c.In) + i)
	case h.c.Kind == op.AttentionGrad:
		return bufferAt(len(h.c.In)-2, h.part(i))
	}
	return buffer(len(h.c.In) - 2 + i)
}

// part is where q, k or v begins in a row, in bytes.
func (h heads) part(i int) (at int64) {
	for _, t := range h.c.In[:i] {
		at += t.DType.Bytes(t.Shape.Last())
	}
	return at
}

// steps are between rows of q, and of k and v, in elements.
func (h heads) steps() (query, key int64) {
	if h.joined {
		return (h.heads + 2*h.keys) * h.d, (h.heads + 2*h.keys) * h.d
	}
	return h.heads * h.d, h.keys * h.d
}

// masks: the call has segments or masks.
func (h heads) masks() bool { return h.c.Attr.Segments || h.c.Attr.KeyMask || h.c.Attr.Mask }

// dropout: weights are dropped.
func (h heads) dropout() bool { return h.c.Attr.Prob > 0 }

// maskArgs lists the parameters of mask.h. Spans are those of documents, or nothing.
func (h heads) maskArgs(spans arg) []arg {
	a, next := h.c.Attr, h.optional
	pick := func(has bool) arg {
		if !has {
			return arg{}
		}
		next++
		return h.operand(next - 1)
	}
	segments, keyMask, mask := pick(a.Segments), pick(a.KeyMask), pick(a.Mask)
	var sample, head int64
	if a.Mask {
		sample, head = h.c.In[len(h.c.In)-1].MaskSteps()
	}
	return []arg{segments, keyMask, mask, i64(sample), i64(head), spans, i64(h.t), i64(h.s), i64(h.heads), i64(h.keys), i64(h.d), f32(a.Scale),
		flag(a.Causal), i64(a.Window), f32(a.Prob), f32(1 / (1 - a.Prob)), i64(int64(a.Stream)), key(), row()}
}

// tiling says how a file of attention kernels divides the work among blocks of threads.
type tiling struct {
	unit, gradient, delta unit // with the forward kernel, with those of the gradient
	// Rows a block works on: queries in the forward kernel, queries and keys in those
	// of the gradient.
	forward, queries, keys int64
	deltas                 int64 // rows of o and do
	spans                  bool  // takes spans of documents
	// Shared memory of each, in bytes.
	forwardShared, queriesShared, keysShared int64
}

// plain is the tiling of attention.cu, which takes every call.
func (h heads) plain() tiling {
	width := ceilDiv(h.d, 16) * 16
	const rows = 32
	bytes := func(tiles, weights int64) int64 { return 4 * (tiles*rows*(width+1) + weights*rows*(rows+1)) }
	u := unit{file: "attention", element: h.c.In[0].DType, head: width, masks: h.masks(), dropout: h.dropout()}
	return tiling{unit: u, gradient: u, delta: u,
		forward: rows, queries: rows, keys: rows, deltas: 8,
		forwardShared: bytes(3, 1), queriesShared: bytes(4, 1), keysShared: bytes(4, 2)}
}

// flash is the tiling of flash.cu and flashGrad.cu, which compute on tensor cores, so
// many keys at a time.
func (h heads) flash(keys int64) tiling {
	const strip = 32
	rows, element := int64(128), h.c.In[0].DType
	if h.d > 64 {
		rows = 64
	}
	bytes := func(rows int64) int64 { return element.Bytes(rows * (h.d + elementsPerLoad(element))) }
	u := unit{file: "flash", element: element, head: h.d, keys: keys, masks: h.masks(), dropout: h.dropout()}
	grad := u
	grad.file = "flashGrad"
	return tiling{unit: u, gradient: grad, delta: h.deltaUnit(), spans: h.c.Attr.Segments,
		forward: 128, queries: rows, keys: rows, deltas: h.deltaRows(),
		forwardShared: bytes(128 + 4*keys), queriesShared: bytes(2*rows + 4*keys), keysShared: bytes(2*rows + 4*strip)}
}

// deltaUnit is that of delta.cu.
func (h heads) deltaUnit() unit { return unit{file: "delta", element: h.c.In[0].DType, head: h.d} }

// deltaRows is how many rows a block of it works on.
func (h heads) deltaRows() int64 { return 256 / max(8, powerOf2(h.d/elementsPerLoad(h.c.In[0].DType))) }

// powerOf2 is the smallest power of two that is at least n.
func powerOf2(n int64) int64 { return 1 << bits.Len64(uint64(n-1)) }

// chooseTiling is the fastest tiling for the call. Tensor cores round f32 to tf32, which the
// device must be configured for (tf32).
func (h heads) chooseTiling(d *Device) tiling {
	if h.d%16 != 0 || h.d > 128 || h.c.Attr.Scale <= 0 || h.c.In[0].DType == dtype.F32 && !d.options.TF32 {
		return h.plain()
	}
	for _, keys := range []int64{64, 32} {
		t := h.flash(keys)
		if max(t.forwardShared, t.queriesShared, t.keysShared) <= int64(d.gpu.shared) && (keys < 64 || t.unit.element != dtype.F32) {
			return t
		}
	}
	return h.plain()
}

// attentionThreads work on a tile, in both files.
const attentionThreads = 128

// launch prepares a kernel over rows in tiles.
func (h heads) launch(d *Device, u unit, name string, tiles, lines, shared int64, spans arg, args ...arg) (*kernelLaunch, error) {
	return d.grid(u, name, [3]int64{tiles, lines, h.b}, [3]int64{attentionThreads, 1, 1}, shared, append(args, h.maskArgs(spans)...)...)
}

// documents appends a kernel that finds the spans of packed documents, stores them at the end
// of the scratch memory, and returns where they are.
func (h heads) documents(d *Device, t tiling, p *program) (spans arg, err error) {
	if !t.spans {
		return arg{}, nil
	}
	const span, ofBlock = 32, 8
	spans, p.workspace = scratchAt(p.workspace), p.workspace+aligned(8*h.b*ceilDiv(h.s, span))
	return spans, p.add(d.grid(t.unit, "documentSpans", [3]int64{ceilDiv(h.s, span*ofBlock), h.b, 1}, [3]int64{32 * ofBlock, 1, 1}, 0,
		buffer(h.optional), spans, i64(h.s)))
}

// attention asks cuDNN where it is faster than our kernel for Hopper: for narrow heads, and where
// all keys are seen.
func attention(d *Device, c op.Call) (program, error) {
	h := headsOf(c, 3)
	if faster := h.fitsHopper(d) && h.d > 64 && c.Attr.Causal; h.fitsDNN(d) && !faster {
		if p, err := h.forwardGraph(d); len(p.actions) > 0 || err != nil {
			return p, err
		}
	}
	if h.fitsHopper(d) {
		return h.forwardHopper(d)
	}
	if h.fitsAmpere(d) {
		return h.forwardAmpere(d, h.ampereForward(d))
	}
	return h.forward(d, h.chooseTiling(d))
}

// joinedAttention and its gradient are by the kernels that take rows any number of elements apart.
func joinedAttention(d *Device, c op.Call) (program, error) {
	h := headsOf(c.Apart(), 3)
	h.joined = true
	if err := h.checkJoined(d); err != nil {
		return program{}, err
	}
	if faster := h.d > 64 && c.Attr.Causal; h.fitsDNN(d) && !faster {
		if p, err := h.forwardGraph(d); len(p.actions) > 0 || err != nil {
			return p, err
		}
	}
	return h.forwardHopper(d)
}

func joinedAttentionGrad(d *Device, c op.Call) (program, error) {
	h := headsOf(c.Apart(), 6)
	h.joined = true
	if err := h.checkJoined(d); err != nil {
		return program{}, err
	}
	return h.gradientHopper(d)
}

// checkJoined refuses calls that only kernels for rows without gaps take.
func (h heads) checkJoined(d *Device) error {
	if !h.fitsHopper(d) || h.heads != h.keys || h.c.Attr.Segments {
		return unsupported("q, k and v are split first")
	}
	return nil
}

func (h heads) forward(d *Device, t tiling) (p program, err error) {
	spans, err := h.documents(d, t, &p)
	if err != nil {
		return p, err
	}
	o := len(h.c.In)
	err = p.add(h.launch(d, t.unit, "attention", ceilDiv(h.t, t.forward), h.heads, t.forwardShared, spans,
		buffer(0), buffer(1), buffer(2), buffer(o), buffer(o+1)))
	return p, err
}

// attentionGrad asks cuDNN last of those on tensor cores: its backward pass is slower than
// ours for Hopper, and holds a number for every pair.
func attentionGrad(d *Device, c op.Call) (program, error) {
	h := headsOf(c, 6)
	if h.fitsHopper(d) {
		return h.gradientHopper(d)
	}
	if s, ok := h.slices(); ok && h.fitsDNN(d) {
		if p, err := h.gradientGraph(d, s); len(p.actions) > 0 || err != nil {
			return p, err
		}
	}
	if h.fitsAmpere(d) {
		return h.gradientAmpere(d, h.ampereGradient(d))
	}
	return h.gradient(d, h.chooseTiling(d))
}

// attentionMaskGrad is by a plain kernel, which holds no scores.
func attentionMaskGrad(d *Device, c op.Call) (p program, err error) {
	h := headsOf(c, 6)
	t, rows, masks := h.plain(), h.b*h.t*h.heads, c.Out[0].Shape.Elements()/(h.t*h.s)
	samples, heads := int64(1), int64(1) // masks of their own
	if sample, head := c.Out[0].MaskSteps(); sample > 0 || head > 0 {
		if head > 0 {
			heads = h.heads
		}
		samples = masks / heads
	}
	p.workspace = aligned(4 * rows)
	blocks := masks * ceilDiv(h.t, t.queries) * ceilDiv(h.s, t.keys)
	return p, errors.Join(
		p.add(d.grid(t.delta, "attentionDelta", [3]int64{ceilDiv(rows, t.deltas), 1, 1}, [3]int64{32, 8, 1}, 0,
			buffer(3), buffer(5), scratchAt(0), i64(rows), i64(h.t), i64(h.heads), i64(h.d))),
		p.add(d.grid(t.gradient, "attentionGradMask", [3]int64{blocks, 1, 1}, [3]int64{attentionThreads, 1, 1}, t.queriesShared,
			append([]arg{buffer(0), buffer(1), buffer(2), buffer(4), buffer(5), scratchAt(0), buffer(len(c.In)), i64(h.b), i64(samples), i64(heads)}, h.maskArgs(arg{})...)...)))
}

// splits is among how many blocks the heads that share a key head are divided.
func (h heads) splits(t tiling, multiprocessors int64) int64 {
	if t.unit.file != "flash" {
		return 1
	}
	return h.dealt(ceilDiv(h.s, t.keys), multiprocessors)
}

// dealt is into how many parts the heads that share a key head are divided, so that with
// so many tiles of keys a sample there are enough blocks to fill the GPU.
func (h heads) dealt(tiles, multiprocessors int64) int64 {
	group, blocks := h.heads/h.keys, tiles*h.keys*h.b
	n := int64(1)
	for n < group && blocks*n < 4*multiprocessors {
		n++
		for group%n != 0 {
			n++
		}
	}
	return n
}

// foldParts appends the sums of n parts of dk and dv, which lie one after the other.
func (h heads) foldParts(d *Device, p *program, parts, n int64) (err error) {
	out, size := len(h.c.In), h.c.Out[1].Shape.Elements()
	for i := int64(0); i < 2 && n > 1 && err == nil; i++ {
		err = p.add(d.line(unitFor("reduce", h.c.In[0].DType), "foldParts", ceilDiv(size, 4*threads), threads,
			scratchAt(parts+i*n*4*size), buffer(out+1+int(i)), i64(n), i64(size)))
	}
	return err
}

// gradient: operands q, k, v, o, lse, do. One kernel sums over keys and one over
// queries, so that no two threads add to the same element.
func (h heads) gradient(d *Device, t tiling) (p program, err error) {
	out, rows, n := len(h.c.In), h.b*h.t*h.heads, h.splits(t, int64(d.gpu.multiprocessors))
	size, from := h.c.Out[1].Shape.Elements(), aligned(4*rows)
	p.workspace = from
	if n > 1 {
		p.workspace += 2 * n * aligned(4*size)
	}
	spans, err := h.documents(d, t, &p)
	if err != nil {
		return p, err
	}
	operands := []arg{buffer(0), buffer(1), buffer(2), buffer(4), buffer(5), scratchAt(0)}
	err = errors.Join(
		p.add(d.grid(t.delta, "attentionDelta", [3]int64{ceilDiv(rows, t.deltas), 1, 1}, [3]int64{32, 8, 1}, 0,
			buffer(3), buffer(5), scratchAt(0), i64(rows), i64(h.t), i64(h.heads), i64(h.d))),
		p.add(h.launch(d, t.gradient, "attentionGradQueries", ceilDiv(h.t, t.queries), h.heads, t.queriesShared, spans,
			append(operands, buffer(out))...)),
		p.add(h.launch(d, t.gradient, "attentionGradKeys", ceilDiv(h.s, t.keys), h.keys*n, t.keysShared, spans,
			append(operands, buffer(out+1), buffer(out+2), scratchAt(from), i64(n))...)))
	return p, errors.Join(err, h.foldParts(d, &p, from, n))
}
