package nn

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Walk visits a model or a part of one, and everything its hf tags reach, outside
// in and in the order of the fields: modules as pointers to their structs, params
// as *Param, each with its name relative to root. Something shared is visited
// once per way to it. An error of visit ends the walk.
func Walk(root any, visit func(name string, part any) error) error {
	w := walk{visit: visit, open: map[any]bool{}}
	return w.value(reflect.ValueOf(root), "")
}

type walk struct {
	visit func(string, any) error
	open  map[any]bool // pointers on the way from the root, to notice cycles
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
		return w.list(v, name)
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
	at := v.Interface()
	if w.open[at] {
		return fmt.Errorf("is part of itself")
	}
	w.open[at] = true
	defer delete(w.open, at)
	return w.value(v.Elem(), name)
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
	for i := range v.NumField() {
		if err := w.field(v, i, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) field(v reflect.Value, i int, name string) error {
	f := v.Type().Field(i)
	tag, tagged := f.Tag.Lookup("hf")
	if !tagged && !f.Anonymous {
		return nil
	}
	tag, optional := strings.CutSuffix(tag, ",optional")
	if !f.IsExported() {
		if !tagged {
			return nil
		}
		return fmt.Errorf("%s.%s has an hf tag but is unexported; write its name with a capital", v.Type(), f.Name)
	}
	value := v.Field(i)
	if optional && value.Kind() == reflect.Pointer && value.IsNil() {
		return nil
	}
	if err := w.value(value, join(name, tag)); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

func (w *walk) list(v reflect.Value, name string) error {
	for i := range v.Len() {
		if err := w.value(v.Index(i), join(name, strconv.Itoa(i))); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "." + b
}
