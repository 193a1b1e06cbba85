package spec

import (
	"bytes"
	"reflect"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

func sample() *graph.Program {
	typ := op.Type{DType: dtype.F32, Shape: []int64{2, 3}}
	return &graph.Program{
		Name:    "block",
		Types:   []op.Type{{}, typ, typ, typ},
		Inputs:  []graph.Port{{Value: 1, Role: graph.Carry, Name: "x"}},
		Nodes:   []graph.Node{{Kind: op.Add, In: []graph.Value{1, 1}, Out: []graph.Value{2}, At: "a.go:1"}},
		Outputs: []graph.Port{{Value: 2, Role: graph.Carry}},
	}
}

// Every field of every part of a program is in the key, so that a field added to an
// op later is not forgotten here.
func TestKeyHoldsEveryField(t *testing.T) {
	plain := appendProgram(nil, sample())
	ignored := map[string]bool{"Node.At": true}
	parts := []func(p *graph.Program) any{
		func(p *graph.Program) any { return &p.Nodes[0].Attr },
		func(p *graph.Program) any { return &p.Nodes[0].Attr.Spatial },
		func(p *graph.Program) any { return &p.Nodes[0] },
		func(p *graph.Program) any { return &p.Inputs[0] },
		func(p *graph.Program) any { return &p.Outputs[0] },
		func(p *graph.Program) any { return &p.Types[3] },
	}
	for _, part := range parts {
		typ := reflect.TypeOf(part(sample())).Elem()
		for i := range typ.NumField() {
			name := typ.Name() + "." + typ.Field(i).Name
			p := sample()
			if !change(reflect.ValueOf(part(p)).Elem().Field(i)) {
				continue // a struct of its own
			}
			if same := bytes.Equal(plain, appendProgram(nil, p)); same != ignored[name] {
				t.Errorf("changing %s leaves the key the same: %v, want %v", name, same, ignored[name])
			}
		}
	}
}

// change gives a field another value; false if it is a struct.
func change(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.String:
		v.SetString(v.String() + "'")
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]float64{"low": 1}))
	case reflect.Struct:
		return false
	default:
		panic("no way to change a " + v.Kind().String())
	}
	return true
}

func TestKeyLeavesOutTheNamesOfParams(t *testing.T) {
	a, b := sample(), sample()
	a.Inputs[0].Role, b.Inputs[0].Role = graph.Param, graph.Param
	a.Inputs[0].Name, b.Inputs[0].Name = "layers.0.weight", "layers.1.weight"
	b.Name = "other"
	if !bytes.Equal(appendProgram(nil, a), appendProgram(nil, b)) {
		t.Error("programs that differ in names alone have different keys")
	}
}
