package graph

import (
	"slices"

	"spillway/op"
)

// FewRows is up to how many rows of a step Fuse looks for fused ops: beyond, matmuls take
// longer than the pauses between them. Where rows are to be exact, steps of all sizes have the same ops.
const FewRows = 256

// Fuse gives a program of few rows with fused ops (op.Kind.Fused) in place of the ops they
// stand for, wherever has says that the device has a kernel. Sums are added to what they
// are added to by the matmul that makes them, and matmuls with weights say so. Where
// nothing is to be done it gives the program itself, which it never changes.
func Fuse(p *Program, has func(op.Call) bool) *Program {
	f := newFuser(p, has)
	fused := false
	for i := range f.Nodes {
		switch f.Nodes[i].Kind {
		case op.CachedAttention:
			fused = f.heads(i) || fused
		case op.Gated:
			fused = f.gated(i) || fused
		}
	}
	if !fused {
		return p
	}
	for i := range f.Nodes {
		if f.Nodes[i].Kind == op.Add {
			f.plus(i)
		}
	}
	return constant(f.compact())
}

func newFuser(p *Program, has func(op.Call) bool) *fuser {
	f := &fuser{Program: *p, has: has, maker: map[Value]int{}, uses: map[Value]int{}, weights: p.weights()}
	f.Nodes = slices.Clone(p.Nodes)
	for _, out := range p.Outputs {
		f.uses[out.Value]++
	}
	for i, n := range f.Nodes {
		for _, v := range n.In {
			f.uses[v]++
		}
		for _, v := range n.Out {
			f.maker[v] = i
		}
	}
	return f
}

// constant says of matmuls with weights that they are, in a program that nobody else has.
func constant(p *Program) *Program {
	weights := p.weights()
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Kind == op.MatMul && weights[n.In[1]] {
			n.Attr.Constant = true
		}
	}
	return p
}

// Constant gives a program whose matmuls with weights say that nothing writes them, as Fuse does: those
// of blocks without attention, such as the head. It never changes the program.
func Constant(p *Program) *Program {
	q := *p
	q.Nodes = slices.Clone(p.Nodes)
	return constant(&q)
}

// fuser changes a copy of a program. Nodes that are no longer wanted have no kind.
type fuser struct {
	Program
	has     func(op.Call) bool
	maker   map[Value]int // the node that makes a value
	uses    map[Value]int
	weights map[Value]bool
	extra   map[int]Node // nodes that follow a node
}

// made is the node of a kind that makes a value which nothing else uses.
func (f *fuser) made(v Value, kind op.Kind, uses int) (Node, bool) {
	i, ok := f.maker[v]
	if !ok || f.Nodes[i].Kind != kind || f.uses[v] != uses {
		return Node{}, false
	}
	return f.Nodes[i], true
}

// product is the matmul of a weight, plain or packed, that makes a value, with or without a bias.
func (f *fuser) product(v Value) (Node, bool) {
	n, ok := f.made(v, op.MatMul, 1)
	a := n.Attr
	plain := a.TransB && !a.TransA && !a.Plus && !a.Accumulate
	if !ok {
		n, ok = f.made(v, op.QuantizedMatmul, 1)
		a = n.Attr
		plain = a.OutlierThreshold == 0
	}
	return n, ok && plain && f.weights[n.In[1]] && (!a.Bias || f.weights[n.In[2]])
}

// normed is the norm of rows that so many matmuls use, and nothing else.
func (f *fuser) normed(matmuls ...Node) (Node, bool) {
	for _, p := range matmuls {
		if p.In[0] != matmuls[0].In[0] || p.Attr.Bias != matmuls[0].Attr.Bias {
			return Node{}, false
		}
	}
	n, ok := f.made(matmuls[0].In[0], op.RMSNorm, len(matmuls))
	return n, ok && f.weights[n.In[1]] && (f.Types[n.In[0]].Shape.Rows() <= FewRows || matmuls[0].Attr.Exact)
}

// drop takes nodes out.
func (f *fuser) drop(nodes ...Node) {
	for _, n := range nodes {
		i := f.maker[n.Out[0]]
		f.Nodes[i] = Node{}
	}
}

// heads turns norm, matmuls, rotations and attention over a cache into NormHeads and
// AttendCache.
func (f *fuser) heads(i int) bool {
	n := f.Nodes[i]
	turnQ, okQ := f.made(n.In[0], op.Rope, 1)
	turnK, okK := f.made(n.In[1], op.Rope, 1)
	if !okQ || !okK || turnQ.Attr.Inverse || turnK.Attr.Inverse || turnQ.Attr.Scale != turnK.Attr.Scale ||
		turnQ.In[1] != n.In[5] || turnK.In[1] != n.In[5] || turnQ.In[2] != turnK.In[2] {
		return false
	}
	q, okQ := f.product(turnQ.In[0])
	k, okK := f.product(turnK.In[0])
	v, okV := f.product(n.In[2])
	if !okQ || !okK || !okV {
		return false
	}
	norm, ok := f.normed(q, k, v)
	if !ok {
		return false
	}
	made := Node{Kind: op.NormHeads, At: n.At, Attr: op.Attr{Heads: n.Attr.Heads, KVHeads: n.Attr.KVHeads, Eps: norm.Attr.Eps, Scale: turnQ.Attr.Scale, Bias: q.Attr.Bias, Exact: q.Attr.Exact},
		In:  []Value{norm.In[0], norm.In[1], q.In[1], k.In[1], v.In[1], turnQ.In[2], n.In[3], n.In[4], n.In[5], n.In[6], n.In[7]},
		Out: []Value{n.Out[0], n.Out[1], n.In[0]}}
	if q.Attr.Bias {
		made.In = append(made.In, q.In[2], k.In[2], v.In[2])
	}
	attend := Node{Kind: op.AttendCache, At: n.At, Attr: n.Attr, In: []Value{n.In[0], n.Out[0], n.Out[1], n.In[5], n.In[6], n.In[7]}, Out: n.Out[2:]}
	if !f.has(f.Call(made)) || !f.has(f.Call(attend)) {
		return false
	}
	f.drop(turnQ, turnK, q, k, v, norm)
	f.Nodes[i] = made
	if f.extra == nil {
		f.extra = map[int]Node{}
	}
	f.extra[i] = attend
	f.maker[n.In[0]] = i
	return true
}

// gated turns norm, two matmuls and their gate into NormGated.
func (f *fuser) gated(i int) bool {
	n := f.Nodes[i]
	gate, okGate := f.product(n.In[0])
	up, okUp := f.product(n.In[1])
	if !okGate || !okUp || gate.Attr.Bias {
		return false
	}
	norm, ok := f.normed(gate, up)
	if !ok {
		return false
	}
	made := Node{Kind: op.NormGated, At: n.At, Attr: op.Attr{Func: n.Attr.Func, Eps: norm.Attr.Eps, Exact: gate.Attr.Exact}, In: []Value{norm.In[0], norm.In[1], gate.In[1], up.In[1]}, Out: n.Out}
	if !f.has(f.Call(made)) {
		return false
	}
	f.drop(gate, up, norm)
	f.Nodes[i] = made
	return true
}

// plus turns a product and the sum with something else into one matmul.
func (f *fuser) plus(i int) {
	n := f.Nodes[i]
	for side := range 2 {
		product, ok := f.product(n.In[side])
		other := n.In[1-side]
		if !ok || product.Attr.Bias || n.Attr.Accumulate || !f.Types[other].Equal(f.Types[n.In[side]]) {
			continue
		}
		made := Node{Kind: op.MatMul, Attr: product.Attr, At: product.At, In: []Value{product.In[0], product.In[1], other}, Out: n.Out}
		if product.Kind == op.QuantizedMatmul {
			made.Kind = op.QuantizedPlus
		} else {
			made.Attr.Plus = true
		}
		if f.has(f.Call(made)) {
			f.drop(product)
			f.Nodes[i] = made
			return
		}
	}
}

// compact leaves out dropped nodes and the values that nothing makes any more.
func (f *fuser) compact() *Program {
	p := f.Program
	p.Nodes = nil
	for i, n := range f.Nodes {
		if n.Kind != "" {
			p.Nodes = append(p.Nodes, n)
		}
		if more, ok := f.extra[i]; ok {
			p.Nodes = append(p.Nodes, more)
		}
	}
	number := make([]Value, len(p.Types))
	p.Types = p.Types[:1:1]
	keep := func(v Value) {
		number[v] = Value(len(p.Types))
		p.Types = append(p.Types, f.Types[v])
	}
	for _, in := range p.Inputs {
		keep(in.Value)
	}
	for _, n := range p.Nodes {
		for _, v := range n.Out {
			keep(v)
		}
	}
	renumber := func(list []Value) []Value {
		out := make([]Value, len(list))
		for i, v := range list {
			out[i] = number[v]
		}
		return out
	}
	for i := range p.Nodes {
		p.Nodes[i].In, p.Nodes[i].Out = renumber(p.Nodes[i].In), renumber(p.Nodes[i].Out)
	}
	ports := func(list []Port) []Port {
		list = slices.Clone(list)
		for i := range list {
			list[i].Value = number[list[i].Value]
		}
		return list
	}
	p.Inputs, p.Outputs = ports(p.Inputs), ports(p.Outputs)
	return &p
}
