package graph

import (
	"spillway/op"
	"spillway/quant"
)

// Decoded gives a program for a device that multiplies by plain numbers alone: weights in quant.CompressedBF16, which
// a CPU multiplies by as they are stored, are decoded right before the matmuls that read them. All of their bits come
// back, so that the program computes what it does with weights in bf16. Where nothing is to be done it gives the
// program itself, which it never changes.
func Decoded(p *Program) *Program {
	compressed := func(n Node) bool {
		return n.Kind == op.QuantizedMatmul && p.Types[n.In[1]].DType == quant.CompressedBF16
	}
	q := *p
	q.Nodes = nil
	for _, n := range p.Nodes {
		if compressed(n) {
			q.Types = append(q.Types[:len(q.Types):len(q.Types)], op.Type{DType: p.Types[n.In[0]].DType, Shape: p.Types[n.In[1]].Shape})
			w := Value(len(q.Types) - 1)
			q.Nodes = append(q.Nodes, Node{Kind: op.Dequantize, Attr: op.Attr{To: q.Types[w].DType}, At: n.At, In: n.In[1:2:2], Out: []Value{w}})
			in := append([]Value{n.In[0], w}, n.In[2:]...)
			n.Kind, n.Attr, n.In = op.MatMul, op.Attr{TransB: true, Bias: n.Attr.Bias, Exact: n.Attr.Exact}, in
		}
		q.Nodes = append(q.Nodes, n)
	}
	if len(q.Types) == len(p.Types) {
		return p
	}
	return &q
}

// weights are the params of a program, and what Decoded has decoded of them: nothing but that writes it.
func (p *Program) weights() map[Value]bool {
	list := map[Value]bool{}
	for _, in := range p.Inputs {
		list[in.Value] = in.Role == Param
	}
	for _, n := range p.Nodes {
		if n.Kind == op.Dequantize && list[n.In[0]] && p.Types[n.In[0]].DType == quant.CompressedBF16 {
			list[n.Out[0]] = true
		}
	}
	return list
}
