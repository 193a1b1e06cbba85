package cuda

import (
	"cmp"
	"slices"

	"spillway/device"
	"spillway/op"
)

// joint is matmuls of the same rows with several matrices, whose results lie side by side. Where the
// matrices lie one behind the other, as params of a block do, they are one matmul: more rows of weights for each launch, so
// that a GPU is busy longer and pauses less often.
type joint struct {
	weights      []arg
	bytes        []int64  // of each
	whole, parts []action // whole is nil where they differ in more than their weights
}

func (j *joint) run(q *queue, l *device.Launch) error {
	actions := j.whole
	if actions == nil {
		actions = j.parts
	}
	for i := 1; i < len(j.weights); i++ {
		if j.weights[i].value(l) != j.weights[i-1].value(l)+uint64(j.bytes[i-1]) {
			actions = j.parts
		}
	}
	for _, a := range actions {
		if err := q.do(a, l); err != nil {
			return err
		}
	}
	return nil
}

// multiplyJoint appends the matmul of x [rows k] with the transposes of some operands, and returns where in the scratch
// memory its results are [rows outputs of all].
// Exact ones add their biases.
func (d *Device) multiplyJoint(p *program, c op.Call, x arg, rows, k int64, bias []arg, operands ...int) (made arg, err error) {
	t, outputs := c.In[0].DType, int64(0)
	for _, i := range operands {
		outputs += c.In[i].Shape[0]
	}
	made = scratchAt(p.workspace)
	p.workspace += aligned(t.Bytes(rows * outputs))
	j, scratch, at := &joint{}, p.workspace, int64(0)
	multiply := func(i int, n int64) []action {
		result := made
		result.bits += uint64(t.Bytes(at))
		if d.byTiles(c.Attr.Exact, t, rows, n, k) {
			one := matmulTiles{m: rows, n: n, k: k, x: x, w: buffer(i), y: result, step: outputs, constant: true}
			if len(bias) > 0 {
				one.bias = bias[slices.Index(operands, i)]
			}
			step, bad := one.launch(d, t)
			err = cmp.Or(err, bad)
			return []action{step}
		}
		steps, bytes, bad := d.multiply(matmulArgs{m: rows, n: n, k: k, a: matrix{x, t, k, false}, b: matrix{buffer(i), t, k, true}, c: matrix{result, t, outputs, false}, scratch: scratch})
		err, p.workspace = cmp.Or(err, bad), max(p.workspace, scratch+aligned(bytes))
		return steps
	}
	if len(bias) == 0 {
		j.whole = multiply(operands[0], outputs)
	}
	for _, i := range operands {
		n := c.In[i].Shape[0]
		j.weights, j.bytes = append(j.weights, buffer(i)), append(j.bytes, c.In[i].Bytes())
		j.parts = append(j.parts, multiply(i, n)...)
		at += n
	}
	p.actions = append(p.actions, j)
	return made, err
}

// jointRows says whether a fused op of many rows is computed by a few matmuls and what is between them.
func jointRows(c op.Call, rows, k int64) bool {
	return !c.Attr.Exact && rows > fewestRows && k%elementsPerLoad(c.In[0].DType) == 0
}

// normed appends the norm of operand 0 by operand 1 and returns where in the scratch memory it is.
func (d *Device) normed(p *program, c op.Call, rows, k int64) (arg, error) {
	normed := scratchAt(p.workspace)
	p.workspace += aligned(c.In[0].DType.Bytes(rows * k))
	return normed, p.addEarly(d.grid(unitFor("decodeRows", c.In[0].DType), "normRows", [3]int64{rows, 1, 1}, [3]int64{256, 1, 1}, 0, buffer(0), buffer(1), normed, i64(k), f32(c.Attr.Eps)))
}

// jointGated is NormGated of many rows.
func (d *Device) jointGated(c op.Call, rows, n, k int64) (p program, err error) {
	x, err := d.normed(&p, c, rows, k)
	if err != nil {
		return p, err
	}
	if t := c.In[0].DType; gatedTogether(rows) && d.byTiles(c.Attr.Exact, t, rows, 2*n, k) {
		step, err := gatedTiles{m: rows, n: n, k: k, x: x, gate: buffer(2), up: buffer(3), y: buffer(4), function: c.Attr.Func}.launch(d, t)
		p.actions = append(p.actions, step)
		return p, err
	}
	both, err := d.multiplyJoint(&p, c, x, rows, k, nil, 2, 3)
	if err != nil {
		return p, err
	}
	packs := rows * n / elementsPerLoad(c.In[0].DType)
	return p, p.addEarly(d.line(unitFor("decodeRows", c.In[0].DType), "gateRows", d.strideBlocks(packs), threads, both, buffer(4), i64(packs), i64(n), i64(int64(c.Attr.Func))))
}

// turnWarps is TURN_WARPS of decodeRows.cu.
const turnWarps = 4

// jointHeads is NormHeads of many rows, with a cache of any type.
func (d *Device) jointHeads(c op.Call, rows, k int64, bias [3]arg, scale float64) (p program, err error) {
	x, err := d.normed(&p, c, rows, k)
	if err != nil {
		return p, err
	}
	if d.headsTogether(c, rows, k) {
		step, err := d.launchHeads(c, x, rows, k, scale)
		p.actions = append(p.actions, step)
		return p, err
	}
	var early []arg // exact sums are rounded with their bias
	if c.Attr.Exact && c.Attr.Bias {
		early, bias = slices.Clone(bias[:]), [3]arg{}
	}
	all, err := d.multiplyJoint(&p, c, x, rows, k, early, 2, 3, 4)
	if err != nil {
		return p, err
	}
	h := storedHeads(c)
	return p, p.addEarly(d.grid(unitFor("decodeRows", h.element), "turnRows", [3]int64{ceilDiv(h.Heads+2*h.KVHeads, turnWarps), rows, 1}, [3]int64{32 * turnWarps, 1, 1}, h.element.Bytes(turnWarps*h.d),
		append([]arg{all, bias[0], bias[1], bias[2], buffer(5), h.o, h.cacheK, h.cacheV, i64(cacheTypes[h.keys.DType]), i64(cacheTypes[h.values.DType]), i64(h.d), i64(h.keys.Shape.Elements()),
			i64(c.In[5].Shape[0]), f32(scale)}, h.args()...)...))
}

// storedHeads reads a call of NormHeads as what it stores in the cache; o is q.
func storedHeads(c op.Call) cached {
	cache, table, out := c.In[6], c.In[10].Shape, len(c.In)
	return cached{Attr: c.Attr, element: c.In[0].DType, keys: cache, values: c.In[7], rows: c.In[0].Shape.Rows(), d: cache.Shape[3], page: cache.Shape[2], streams: table[0], table: table[1], count: cache.Shape[0],
		cacheK: buffer(out), cacheV: buffer(out + 1), o: buffer(out + 2), positions: buffer(8), sequences: buffer(9), pagesAt: buffer(10)}
}

// staged is where keys and values of NormHeads go: to the cache, whose table of pages is the third, or where
// the cache has another type to scratch memory, from which store puts them there.
type staged struct {
	k, v, pages arg
	cached
	apart bool
}

func newStaged(p *program, c op.Call) staged {
	s := staged{cached: storedHeads(c)}
	s.k, s.v, s.pages = s.cacheK, s.cacheV, s.pagesAt
	if s.apart = s.keys.DType != s.element || s.values.DType != s.element; s.apart {
		bytes := aligned(s.element.Bytes(s.rows * s.KVHeads * s.d))
		s.k, s.v, s.pages = scratchAt(p.workspace), scratchAt(p.workspace+bytes), arg{}
		p.workspace += 2 * bytes
	}
	s.cached.k, s.cached.v = s.k, s.v
	return s
}

// finish appends what stores them.
func (s staged) finish(d *Device, p *program) error {
	if !s.apart {
		return nil
	}
	return s.store(d, p)
}
