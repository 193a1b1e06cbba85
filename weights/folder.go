package weights

import (
	"fmt"
	"slices"
	"strings"

	"spillway/arch"
	"spillway/safetensors"
	"spillway/spec"
)

// Tensors is a model folder, or its weights alone.
type Tensors interface {
	Tensors() []safetensors.Tensor
	Tensor(name string) (safetensors.Tensor, bool)
}

// FromTensors is the params as a folder has them, widened to float32. Every param
// must be there in its shape, and every tensor of the folder must be a param or
// known to be none: a tensor that nobody reads means that the wrong model does.
func FromTensors(t Tensors, info arch.Info, params []spec.Param) (Source, error) {
	f := folder{}
	used := map[string]bool{}
	var missing []string
	for _, p := range params {
		found, ok := find(t, info, p.Name)
		if !ok {
			missing = append(missing, p.Name)
			continue
		}
		if !found.Shape.Equal(p.Type.Shape) {
			return nil, fmt.Errorf("tensor %s in %s has the shape %v, the model wants %v; is config.json the one of these weights?", found.Name, found.Path(), found.Shape, p.Type.Shape)
		}
		f[p.Name], used[found.Name] = found, true
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the folder lacks %s", few(missing))
	}
	var unknown []string
	for _, tensor := range t.Tensors() {
		if !used[tensor.Name] && !info.Buffer(tensor.Name) {
			unknown = append(unknown, tensor.Name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("the folder has %s, for which the model has no use; is config.json the one of these weights?", few(unknown))
	}
	return f, nil
}

func find(t Tensors, info arch.Info, param string) (safetensors.Tensor, bool) {
	for _, name := range info.FileNames(param) {
		if found, ok := t.Tensor(name); ok {
			return found, true
		}
	}
	return safetensors.Tensor{}, false
}

// few names some of a list, so that an error stays readable.
func few(names []string) string {
	const shown = 4
	slices.Sort(names)
	if n := len(names); n > shown {
		return fmt.Sprintf("%d tensors: %s, ...", n, strings.Join(names[:shown], ", "))
	}
	return strings.Join(names, ", ")
}

// folder is the tensor of each param.
type folder map[string]safetensors.Tensor

func (f folder) Read(param string, first int64, dst []float32) error {
	t, ok := f[param]
	if !ok {
		return fmt.Errorf("param %s is not part of the model these weights were opened for", param)
	}
	return t.ReadF32(dst, first)
}

// Join reads the params that the first source is for from it, and all others from
// the second: a folder's weights with fresh adapters.
func Join(has func(param string) bool, first, second Source) Source {
	return joined{has, first, second}
}

type joined struct {
	has           func(string) bool
	first, second Source
}

func (j joined) Read(param string, first int64, dst []float32) error {
	if j.has(param) {
		return j.first.Read(param, first, dst)
	}
	return j.second.Read(param, first, dst)
}
