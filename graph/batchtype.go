package graph

import (
	"spillway/dtype"
	"spillway/op"
)

// CastOf is the type that a program casts a part of the batch to, if it reads that part and casting is all it does with it.
func CastOf(p *Program, part string) (to dtype.Type, reads, only bool) {
	only = true
	for _, in := range Ports(p.Inputs, Batch) {
		if in.Name != part {
			continue
		}
		reads = true
		for _, n := range p.Nodes {
			for _, v := range n.In {
				switch {
				case v != in.Value:
				case n.Kind != op.Cast || to != dtype.Invalid && n.Attr.To != to:
					only = false
				default:
					to = n.Attr.To
				}
			}
		}
		for _, out := range p.Outputs {
			only = only && out.Value != in.Value
		}
	}
	return to, reads, only
}

// WithoutCasts gives a program that reads a part of the batch in the type that it casts it to, and casts no more.
func WithoutCasts(p *Program, part string, to dtype.Type) *Program {
	f := newFuser(p, nil)
	f.Types = append(f.Types[:0:0], p.Types...)
	for _, in := range Ports(p.Inputs, Batch) {
		if in.Name != part {
			continue
		}
		f.Types[in.Value].DType = to
		for _, n := range p.Nodes {
			if n.Kind == op.Cast && n.In[0] == in.Value {
				f.drop(n)
				f.replace(n.Out[0], in.Value)
			}
		}
	}
	return f.compact()
}

// replace has all that uses one value use another.
func (f *fuser) replace(old, by Value) {
	for i := range f.Nodes {
		for k, v := range f.Nodes[i].In {
			if v == old {
				f.Nodes[i].In = append([]Value(nil), f.Nodes[i].In...)
				f.Nodes[i].In[k] = by
			}
		}
	}
	outputs := append([]Port(nil), f.Outputs...)
	for i := range outputs {
		if outputs[i].Value == old {
			outputs[i].Value = by
		}
	}
	f.Outputs = outputs
}
