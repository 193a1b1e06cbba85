package nn

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Walk visits a model or a part of one, and everything its hf tags reach, outside
// in and in the order of the fields: modules as pointers to their structs, params
// as *Param, each with its name relative to root. Something shared is visited
// once per way to it. An error of visit ends the walk.
func Walk(root any, visit func(name string, part any) error) error {
	w := walk{visit: visit}
	return w.value(reflect.ValueOf(root), "")
}

type walk struct {
	visit func(string, any) error
	open  []reflect.Value // pointers on the way from the root, to notice cycles
}

var (
	paramType = reflect.TypeFor[Param]()
	layerType = reflect.TypeFor[Layer]()
)

func (w *walk) value(v reflect.Value, name string) error {
	switch v.Kind() {
	case reflect.Invalid:
		return fmt.Errorf("is nil; give it a value, or the tag the option \"optional\"")
	case reflect.Interface:
		return w.value(v.Elem(), name)
	case reflect.Pointer:
		return w.pointer(v, name)
	case reflect.Struct:
		return w.module(v, name)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := w.value(v.Index(i), join(name, strconv.Itoa(i))); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	}
	if v.Type().Implements(layerType) { // a layer without weights, such as ReLU
		return nil
	}
	return fmt.Errorf("is a %v, which can hold no weights; remove its hf tag", v.Type())
}

func (w *walk) pointer(v reflect.Value, name string) error {
	if v.IsNil() {
		return w.value(reflect.Value{}, name)
	}
	if slices.ContainsFunc(w.open, func(o reflect.Value) bool { return o.Pointer() == v.Pointer() && o.Type() == v.Type() }) {
		return fmt.Errorf("is part of itself")
	}
	w.open = append(w.open, v)
	err := w.value(v.Elem(), name)
	w.open = w.open[:len(w.open)-1]
	return err
}

func (w *walk) module(v reflect.Value, name string) error {
	if v.CanAddr() {
		if err := w.visit(name, v.Addr().Interface()); err != nil {
			return err
		}
	}
	if v.Type() == paramType {
		if !v.CanAddr() {
			return fmt.Errorf("is a param inside a value; use a pointer to the model")
		}
		return nil
	}
	if n, ok := addressed(v).(named); ok {
		for _, p := range n.Named() {
			if err := w.value(reflect.ValueOf(p.Param), join(name, p.Name)); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
	}
	fields, err := fieldsOf(v.Type())
	if err != nil {
		return err
	}
	for _, f := range fields {
		value := v.Field(f.index)
		if f.optional && value.IsZero() {
			continue
		}
		if err := w.value(value, join(name, f.tag)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// NamedParam is a param of a module that names its params itself.
type NamedParam struct {
	Name  string
	Param *Param
}

// named is a module whose params have names that no tags make, such as "weight_ih_l0".
type named interface{ Named() []NamedParam }

// addressed is a pointer to a module, or nothing where it has no address.
func addressed(v reflect.Value) any {
	if !v.CanAddr() {
		return nil
	}
	return v.Addr().Interface()
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "." + b
}

// field is a tagged field of a struct type.
type field struct {
	index     int
	name, tag string
	optional  bool
}

// known holds the fields of types seen before: reading tags takes most of a walk.
var known sync.Map // reflect.Type to []field

func fieldsOf(t reflect.Type) ([]field, error) {
	if fields, ok := known.Load(t); ok {
		return fields.([]field), nil
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("hf")
		switch {
		case tagged && !f.IsExported():
			return nil, fmt.Errorf("%s.%s has an hf tag but is unexported; write its name with a capital", t, f.Name)
		case !f.IsExported() || !tagged && !(f.Anonymous && f.Type.Kind() == reflect.Struct):
			continue
		}
		tag, optional := strings.CutSuffix(tag, ",optional")
		if strings.Contains(tag, ",") {
			return nil, fmt.Errorf("%s.%s has the hf tag %q; the only option is \"optional\"", t, f.Name, f.Tag.Get("hf"))
		}
		fields = append(fields, field{i, f.Name, tag, optional})
	}
	known.Store(t, fields)
	return fields, nil
}
