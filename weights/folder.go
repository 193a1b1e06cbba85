package weights

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"spillway/arch"
	"spillway/dtype"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/spec"
	"spillway/tensorfile"
)

// FromSource gives params the values that a model's files have, widened to float32;
// quantized weights decode as the library that quantized them decodes them. Every param
// must be there in its shape, and every tensor must be a param or known not to be one: a
// tensor that nobody reads means that these are the weights of another model.
func FromSource(from tensorfile.Source, info arch.Info, params []spec.Param) (Values, error) {
	list, err := stored.Collect(from.Tensors())
	if err != nil {
		return nil, err
	}
	byName := make(map[string]stored.Tensor, len(list))
	for _, w := range list {
		byName[w.Name] = w
	}
	f := folder{}
	used := map[string]bool{}
	var missing []string
	for _, p := range params {
		names := info.FileNames(p.Name)
		at := slices.IndexFunc(names, func(name string) bool { return byName[name].Name != "" })
		if at < 0 {
			missing = append(missing, p.Name)
			continue
		}
		found := byName[names[at]]
		if !found.Shape.Equal(p.Type.Shape) {
			return nil, fmt.Errorf("tensor %s in %s has the shape %v, the model wants %v; is config.json the one of these weights?", found.Name, found.Path(), found.Shape, p.Type.Shape)
		}
		if err := found.CheckReal(); err != nil {
			return nil, fmt.Errorf("%s: %w", found.Path(), err)
		}
		f[p.Name], used[found.Name] = found, true
		for _, other := range info.OtherNames[p.Name] {
			if byName[other].Name == "" || used[other] {
				continue
			}
			if err := sameWeights(from, found.Name, other); err != nil {
				return nil, err
			}
			used[other] = true
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the folder lacks %s%s", shortList(missing), wrapped(missing, list))
	}
	var unknown []string
	for _, tensor := range list {
		if !used[tensor.Name] && !info.IsBuffer(tensor.Name) {
			unknown = append(unknown, tensor.Name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("the folder has %s, for which the model has no use; is config.json the one of these weights?", shortList(unknown))
	}
	return f, nil
}

// wrapped says what to do where a wrapper, as of torch.compile, has put its name before all names of a model.
func wrapped(missing []string, there []stored.Tensor) string {
	prefix := ""
	for _, name := range missing {
		at := slices.IndexFunc(there, func(t stored.Tensor) bool { return strings.HasSuffix(t.Name, "."+name) })
		if at < 0 {
			return ""
		}
		before := strings.TrimSuffix(there[at].Name, name)
		if prefix != "" && prefix != before {
			return ""
		}
		prefix = before
	}
	return fmt.Sprintf("; it has them with %s before their names, which a wrapper put there: save the state_dict of the model inside", prefix)
}

// sameWeights refuses tensors that are one param of the model and have other numbers.
func sameWeights(from tensorfile.Source, a, b string) error {
	x, _ := from.Tensor(a)
	y, _ := from.Tensor(b)
	same, err := tensorfile.SameNumbers(x, y)
	if err == nil && !same {
		err = fmt.Errorf("%s and %s have other numbers, and are one param of the model; give the layers params of their own", a, b)
	}
	return err
}

// shortList names the first of a list, so that an error stays readable.
func shortList(names []string) string {
	const shown = 4
	slices.Sort(names)
	if n := len(names); n > shown {
		return fmt.Sprintf("%d tensors: %s, ...", n, strings.Join(names[:shown], ", "))
	}
	return strings.Join(names, ", ")
}

// folder is the tensor of each param.
type folder map[string]stored.Tensor

func (f folder) Read(param string, first int64, dst []float32) error {
	t, ok := f[param]
	if !ok {
		return fmt.Errorf("param %s is not part of the model these weights were opened for", param)
	}
	return t.ReadF32(dst, first)
}

// Packed gives the param byte for byte, where the files have it in the same type, or its rows
// interleaved.
func (f folder) Packed(param string, t dtype.Type) (io.Reader, bool) {
	w, ok := f[param]
	if !ok || w.Type != t && w.Type != quant.InterleavedOf(t) {
		return nil, false
	}
	at, plain := w.Plain()
	if plain && w.Type == t {
		return io.NewSectionReader(at, 0, t.Bytes(w.Shape.Elements())), true
	}
	if plain {
		return quant.Interleave(t, w.Shape.Rows(), w.Shape.Last(), at), true
	}
	r, _, ok := w.Storage()
	if !ok || w.Type == t {
		return r, ok
	}
	if at, ok = r.(io.ReaderAt); !ok { // made of several tensors
		all, err := io.ReadAll(r)
		if err != nil {
			return failed{err}, true
		}
		at = bytes.NewReader(all)
	}
	return quant.Interleave(t, w.Shape.Rows(), w.Shape.Last(), at), true
}

// failed is read in vain.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// Join reads the params that has names from the first values, and all others from the
// second: a folder's weights with new adapters.
func Join(has func(param string) bool, first, second Values) Values {
	return joined{has, first, second}
}

type joined struct {
	has           func(string) bool
	first, second Values
}

func (j joined) Packed(param string, t dtype.Type) (io.Reader, bool) {
	if j.has(param) {
		return packed(j.first, param, t)
	}
	return packed(j.second, param, t)
}

func (j joined) Read(param string, first int64, dst []float32) error {
	if j.has(param) {
		return j.first.Read(param, first, dst)
	}
	return j.second.Read(param, first, dst)
}
