package lora

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/hf"
	"spillway/shape"
)

// Adapter is the values of an adapter. They are read from its files when they are asked
// for.
type Adapter struct {
	Options Options
	Name    string // of its folder
	Base    string // name or path of the model it was made for, "" where that is not known
	// Transposed: the model stores its linear weights as [in out].
	Transposed bool

	tensors map[string]tensor
	close   func() error
}

// tensor is one param. read may be called from several goroutines.
type tensor struct {
	shape shape.Shape
	read  func(dst []float32, first int64) error
}

// Open opens an adapter's folder, as the PEFT library writes it. The caller closes it.
func Open(dir string) (*Adapter, error) {
	f, err := hf.OpenAdapter(dir)
	if err != nil {
		return nil, err
	}
	return fromFolder(f)
}

// fromFolder makes an adapter of an open folder, which it closes where it refuses it.
func fromFolder(f *hf.AdapterFolder) (*Adapter, error) {
	dir := f.Dir
	o, err := FromPEFT(f.Config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", dir, err), f.Close())
	}
	a := &Adapter{Options: o, Name: dir, Base: f.Config.Base(), Transposed: f.Config.FanInFanOut, tensors: map[string]tensor{}, close: f.Close}
	for _, t := range f.Tensors() {
		a.tensors[t.Name] = tensor{t.Shape, t.ReadF32}
		err = errors.Join(err, t.CheckReal())
	}
	if err = errors.Join(err, a.checkPairs()); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", dir, err), f.Close())
	}
	return a, nil
}

// checkPairs refuses an adapter whose layers lack a part, or have one of another rank than
// its options say.
func (a *Adapter) checkPairs() error {
	sizes, err := a.Options.rankAndAlpha()
	if err != nil {
		return err
	}
	layers := 0
	for _, name := range a.Params() {
		layer, part, ok := strings.Cut(name, ".lora_")
		if !ok {
			continue // a bias or a saved module
		}
		layers++
		down, up := a.Shape(layer+".lora_A.weight"), a.Shape(layer+".lora_B.weight")
		rank, _ := sizes(layer)
		switch {
		case down == nil || up == nil:
			return fmt.Errorf("layer %s has lora_%s, and lora_A and lora_B are both needed: the file is incomplete", layer, part)
		case len(down) != 2 || len(up) != 2 || down[0] != rank || up[1] != rank:
			return fmt.Errorf("layer %s has lora_A %v and lora_B %v, and its rank is %d", layer, down, up, rank)
		case a.Options.DoRA && !a.Has(layer+".lora_magnitude_vector"):
			return fmt.Errorf("layer %s has no lora_magnitude_vector, which an adapter with use_dora has", layer)
		case a.Options.LoRABias && !a.Has(layer+".lora_B.bias"):
			return fmt.Errorf("layer %s has no lora_B.bias, which an adapter with lora_bias has", layer)
		}
	}
	if layers == 0 {
		return fmt.Errorf("it has no layer's lora_A and lora_B")
	}
	return nil
}

// Close closes the folder.
func (a *Adapter) Close() error { return a.close() }

// Has says whether a param is the adapter's.
func (a *Adapter) Has(param string) bool {
	_, ok := a.tensors[param]
	return ok
}

// Params lists the adapter's params, sorted.
func (a *Adapter) Params() []string { return slices.Sorted(maps.Keys(a.tensors)) }

// Shape of a param; nil where there is none of the name.
func (a *Adapter) Shape(param string) shape.Shape { return a.tensors[param].shape }

// Read fills dst with the elements of a param from the first-th on.
func (a *Adapter) Read(param string, first int64, dst []float32) error {
	t, ok := a.tensors[param]
	if !ok {
		return fmt.Errorf("adapter %s has no param %s", a.Name, param)
	}
	return t.read(dst, first)
}

// values reads all of a param; nil where the adapter does not have it.
func (a *Adapter) values(param string) ([]float32, error) {
	t, ok := a.tensors[param]
	if !ok {
		return nil, nil
	}
	out := make([]float32, t.shape.Elements())
	return out, t.read(out, 0)
}

// Fits refuses an adapter that was made for another model. trained has the shapes, by name,
// of the params that a model trains with the adapter's options attached; the adapter must
// have exactly those.
func (a *Adapter) Fits(trained map[string]shape.Shape) error {
	var missing, foreign []string
	for name, want := range trained {
		switch got := a.tensors[name].shape; {
		case !a.Has(name):
			missing = append(missing, name)
		case !got.Equal(want):
			return fmt.Errorf("adapter %s has %s as %v, the model wants %v; is it for another model?", a.Name, name, got, want)
		}
	}
	for name := range a.tensors {
		if _, ok := trained[name]; !ok {
			foreign = append(foreign, name)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("adapter %s lacks %s; is it for another model?", a.Name, shortList(missing))
	case len(foreign) > 0:
		return fmt.Errorf("adapter %s has %s, which the model does not have; is it for another model?", a.Name, shortList(foreign))
	}
	return nil
}

// shortList names the first of a list, so that an error stays readable.
func shortList(names []string) string {
	const shown = 3
	slices.Sort(names)
	if n := len(names); n > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), n-shown)
	}
	return strings.Join(names, ", ")
}
