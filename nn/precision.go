package nn

import (
	"fmt"

	"spillway/dtype"
	"spillway/graph"
)

// Precision is the element type a layer computes in. Layers embed it, so that one can be an
// exception in a model that computes in another type: see Keep.
type Precision struct {
	// Computes is the type; Invalid is that of what is around the layer.
	DType dtype.Type
}

// In lets a layer compute in its own type: x is cast where it comes in, and what the layer
// gives where it goes out.
func (p Precision) In(b *graph.Builder, x graph.Value, layer func(x graph.Value) graph.Value) graph.Value {
	outer := b.DType
	if p.DType == dtype.Invalid || p.DType == outer {
		return layer(x)
	}
	return b.Cast(p.last(b, x, layer), outer)
}

// last is In of a model's last layer: what it gives stays as it is.
func (p Precision) last(b *graph.Builder, x graph.Value, layer func(x graph.Value) graph.Value) graph.Value {
	if p.DType != dtype.Invalid {
		defer func(outer dtype.Type) { b.DType = outer }(b.DType)
		b.DType = p.DType
	}
	return layer(b.Cast(x, b.DType))
}

// Except makes modules exceptions: they compute in a type, and their params rest in it, also
// where they would be in a block format. Chosen is asked about the name of every module;
// what is inside one that is chosen is kept too. It returns the names of params.
func Except(m Model, chosen func(module string) bool, t dtype.Type) ([]string, error) {
	if !t.IsPlain() {
		return nil, fmt.Errorf("modules cannot be kept in %v; use f32, bf16 or f16", t)
	}
	if _, err := Bind(m); err != nil {
		return nil, err
	}
	var names []string
	kept := map[*Param]bool{}
	err := Walk(m, func(name string, part any) error {
		switch p := part.(type) {
		case *Param:
			if !kept[p] && Within(outer(name), chosen) {
				kept[p], names = true, append(names, p.Name)
				p.Storage, p.OutlierThreshold = t, 0
			}
		case *Precision:
			if Within(name, chosen) {
				p.DType = t
			}
		}
		return nil
	})
	return names, err
}
