package nn

import (
	"fmt"

	"spillway/dtype"
	"spillway/graph"
)

// Precision is the element type a layer computes in. Layers embed it, so that one can be an
// exception in a model that computes in another type: see Except.
type Precision struct {
	// DType is the type; Invalid takes that of the surrounding model.
	DType dtype.Type
}

// In runs a layer in its own type: its input is cast on the way in, its result on the way out. A layer without one casts real numbers of
// another type to that of the model, as PyTorch's autocast does.
func (p Precision) In(b *graph.Builder, x graph.Value, layer func(x graph.Value) graph.Value) graph.Value {
	outer := b.DType
	if p.DType == dtype.Invalid || p.DType == outer {
		if t := b.TypeOf(x).DType; t.IsPlain() {
			x = b.Cast(x, outer)
		}
		return layer(x)
	}
	return b.Cast(p.last(b, x, layer), outer)
}

// last is In for a model's last layer, whose result is not cast back.
func (p Precision) last(b *graph.Builder, x graph.Value, layer func(x graph.Value) graph.Value) graph.Value {
	if p.DType != dtype.Invalid {
		defer func(outer dtype.Type) { b.DType = outer }(b.DType)
		b.DType = p.DType
	}
	return layer(b.Cast(x, b.DType))
}

// Except gives some modules a precision of their own: they compute in type t, and their
// params are stored in it, also where others are quantized. chosen is asked about the name of
// every module; a module inside a chosen one is chosen too. It returns the names of the
// params.
func Except(m Model, chosen func(module string) bool, t dtype.Type) ([]string, error) {
	if !t.IsPlain() {
		return nil, fmt.Errorf("modules cannot compute in %v; use f32, bf16 or f16", t)
	}
	if _, err := Bind(m); err != nil {
		return nil, err
	}
	var names []string
	done := map[*Param]bool{}
	err := Walk(m, func(name string, part any) error {
		switch p := part.(type) {
		case *Param:
			if !done[p] && Within(outer(name), chosen) {
				done[p], names = true, append(names, p.Name)
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
