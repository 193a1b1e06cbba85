package deepspeed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// decode reads a JSON object. A key that is there twice is an error, as with
// DeepSpeed.
func decode(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d, "", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	return fields, nil
}

// deepest is how far objects may be nested.
const deepest = 32

func value(d *json.Decoder, path string, depth int) (any, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s is nested deeper than %d", path, deepest)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		fields := map[string]any{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := t.(string) // the decoder takes nothing else here
			if _, twice := fields[key]; twice {
				return nil, fmt.Errorf("%s is there twice; keep one", join(path, key))
			}
			if fields[key], err = value(d, join(path, key), depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return fields, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d, path, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// reader collects what is wrong and what is worth telling.
type reader struct {
	objects []*object
	notices []Notice
	errs    []error
}

func (r *reader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) notice(path string, k Kind, format string, args ...any) {
	r.notices = append(r.notices, Notice{path, k, fmt.Sprintf(format, args...)})
}

// object is a JSON object of which keys are read. What is not read is left over.
type object struct {
	r      *reader
	path   string
	fields map[string]any
	read   map[string]bool
}

func (r *reader) object(path string, fields map[string]any) *object {
	o := &object{r, path, fields, map[string]bool{}}
	r.objects = append(r.objects, o)
	return o
}

func (o *object) at(key string) string { return join(o.path, key) }

// auto is the value that leaves a key to whoever starts the training.
const auto = "auto"

// open says whether a key is there and left open.
func (o *object) open(key string) bool { return o.fields[key] == auto }

// take gives the value of a key; null is as good as nothing.
func (o *object) take(key string) (any, bool) {
	v, ok := o.fields[key]
	if !ok {
		return nil, false
	}
	if !o.read[key] && v == auto {
		o.r.notice(o.at(key), Open, "it is left to flags and defaults")
	}
	o.read[key] = true
	return v, v != nil && v != auto
}

func (o *object) wrong(key string, v any, want string) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte("not readable")
	}
	o.r.fail("%s is %s; it is %s", o.at(key), text, want)
}

// child is the object under a key, empty if there is none.
func (o *object) child(key string) *object {
	fields, _ := typed[map[string]any](o, key, "an object")
	return o.r.object(o.at(key), fields)
}

// typed is the value of a key as a T; of another type it is wrong.
func typed[T any](o *object, key, want string) (T, bool) {
	v, ok := o.take(key)
	t, is := v.(T)
	if ok && !is {
		o.wrong(key, v, want)
	}
	return t, ok && is
}

func (o *object) flag(key string) (bool, bool) { return typed[bool](o, key, "true or false") }

func (o *object) text(key string) (string, bool) { return typed[string](o, key, "a text") }

func (o *object) number(key string) (float64, bool) {
	n, ok := typed[json.Number](o, key, "a number")
	f, err := n.Float64()
	if ok && err != nil {
		o.wrong(key, n, "a number")
	}
	return f, ok && err == nil
}

// whole is an integer, which may be written 5e8.
func (o *object) whole(key string) (int64, bool) {
	f, ok := o.number(key)
	if ok && (f != math.Trunc(f) || math.Abs(f) > 1<<53) {
		o.wrong(key, o.fields[key], "an integer")
		return 0, false
	}
	return int64(f), ok
}

// leftovers reports the keys that nobody read.
func (r *reader) leftovers() {
	for _, o := range r.objects {
		for _, key := range slices.Sorted(maps.Keys(o.fields)) {
			if o.read[key] {
				continue
			}
			kind, why := Unknown, "there is no such key in DeepSpeed's documentation; look for a slip of the pen"
			for _, u := range unread {
				if slices.Contains(u.keys, o.at(key)) {
					kind, why = u.kind, u.why
				}
			}
			r.notice(o.at(key), kind, "%s", why)
		}
	}
	slices.SortStableFunc(r.notices, func(a, b Notice) int { return strings.Compare(a.Path, b.Path) })
}
