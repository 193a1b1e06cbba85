package lora

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"spillway/nn"
	"spillway/shape"
)

// Values gives the values of params, of a model's folder or of an Adapter. Read fills dst
// with the elements of a param from the first-th on; it may be called from several
// goroutines.
type Values interface {
	Read(param string, first int64, dst []float32) error
}

// Weighted is an adapter and the factor of what it adds: 1 adds all of it, -1 takes away
// again what was merged before.
type Weighted struct {
	Adapter *Adapter
	Weight  float64
}

// check refuses a weight that would make every number infinite or none.
func (w Weighted) check() error {
	if math.IsNaN(w.Weight) || math.Abs(w.Weight) > math.MaxFloat32 {
		return fmt.Errorf("its weight is %v, want a number such as 1, 0.5 or -1", w.Weight)
	}
	return nil
}

// Merged is a model's values with adapters added in, for a model that runs without them.
// It holds only the adapters of the layer that is being read, so that models may be larger
// than memory.
type Merged struct {
	base    Values
	weights map[string][]*addition // by the weights they are added to
	biases  map[string][]*addition
	whole   map[string]*Adapter // params that an adapter has in full: biases, saved modules

	mu      sync.Mutex
	current string // the weight whose additions are loaded
	loaded  []*lowRank
}

// addition is one adapter of one layer.
type addition struct {
	linear
	from   *Adapter
	factor float64 // scale times weight
	dora   bool
}

// Merge adds adapters to the values of a model; build makes a new copy of the model each
// time. Adapters for other models are refused, and so is taking away what cannot be undone:
// DoRA, biases and saved modules.
func Merge(build func() (nn.Model, error), base Values, list []Weighted) (*Merged, error) {
	m := &Merged{base: base, weights: map[string][]*addition{}, biases: map[string][]*addition{}, whole: map[string]*Adapter{}}
	for _, w := range list {
		if err := errors.Join(w.check(), m.addAdapter(build, w)); err != nil {
			return nil, fmt.Errorf("merging %s: %w", w.Adapter.Name, err)
		}
	}
	return m, nil
}

func (m *Merged) addAdapter(build func() (nn.Model, error), w Weighted) error {
	net, err := build()
	if err != nil {
		return err
	}
	layers, err := w.Adapter.attachTo(net)
	if err != nil {
		return err
	}
	inLayers := map[string]bool{}
	for _, p := range layers {
		if err := m.addLayer(p, w); err != nil {
			return fmt.Errorf("layer %s: %w", p.name, err)
		}
		for _, part := range []string{"lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector"} {
			inLayers[p.name+"."+part] = true
		}
	}
	for _, name := range w.Adapter.Params() {
		switch {
		case inLayers[name]:
		case w.Weight != 1 || m.whole[name] != nil:
			return fmt.Errorf("it has its own %s, which cannot be weighted, taken away or merged with another", name)
		default:
			m.whole[name] = w.Adapter
		}
	}
	return nil
}

// AttachTo attaches the adapter's layers to a model and returns their names. An adapter
// that does not fit the model is refused.
func (a *Adapter) AttachTo(net nn.Model) (names []string, err error) {
	layers, err := a.attachTo(net)
	for _, p := range layers {
		names = append(names, p.name)
	}
	return names, err
}

func (a *Adapter) attachTo(net nn.Model) ([]linear, error) {
	if _, err := Attach(net, a.Options); err != nil {
		return nil, err
	}
	params, err := nn.Bind(net)
	if err != nil {
		return nil, err
	}
	trained := map[string]shape.Shape{}
	for _, p := range params {
		if !p.Frozen {
			trained[p.Name] = p.Shape
		}
	}
	if err := a.Fits(trained); err != nil {
		return nil, err
	}
	all, err := linears(net)
	return slices.DeleteFunc(all, func(p linear) bool { return *p.adapter == nil }), err
}

// addLayer records what an adapter adds to a layer.
func (m *Merged) addLayer(p linear, w Weighted) error {
	at := *p.adapter
	a := &addition{p, w.Adapter, at.Scale * w.Weight, at.Magnitude != nil}
	others := m.weights[p.weight.Name]
	switch {
	case a.dora && (w.Weight != 1 || len(others) > 0) || len(others) > 0 && others[0].dora:
		return fmt.Errorf("its adapter changes magnitudes (DoRA), so it cannot be weighted, taken away or merged with another")
	case at.Bias != nil && p.bias == nil:
		return fmt.Errorf("its adapter has a bias and the layer has none to add it to")
	case at.Bias != nil:
		m.biases[p.bias.Name] = append(m.biases[p.bias.Name], a)
	}
	m.weights[p.weight.Name] = append(others, a)
	return nil
}

// Changes says whether a param is not as in the base.
func (m *Merged) Changes(param string) bool {
	return m.weights[param] != nil || m.biases[param] != nil || m.whole[param] != nil
}

// Read fills dst with the elements of a param from the first-th on.
func (m *Merged) Read(param string, first int64, dst []float32) error {
	from := m.base
	if a := m.whole[param]; a != nil {
		from = a
	}
	if err := from.Read(param, first, dst); err != nil {
		return err
	}
	if err := m.addBiases(param, first, dst); err != nil || m.weights[param] == nil {
		return err
	}
	loaded, err := m.load(param)
	for _, l := range loaded {
		l.add(dst, first)
	}
	return err
}

func (m *Merged) addBiases(param string, first int64, dst []float32) error {
	for _, a := range m.biases[param] {
		bias, err := a.from.values(a.name + ".lora_B.bias")
		if err != nil {
			return err
		}
		for i := range dst {
			dst[i] += float32(a.factor * float64(bias[first+int64(i)]))
		}
	}
	return nil
}

// load reads the additions of a weight, unless they are loaded already.
func (m *Merged) load(param string) ([]*lowRank, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == param {
		return m.loaded, nil
	}
	m.current, m.loaded = "", nil
	for _, a := range m.weights[param] {
		l, err := a.load()
		if err == nil && a.dora {
			err = l.findOutputScale(m.base, param, a)
		}
		if err != nil {
			return nil, err
		}
		m.loaded = append(m.loaded, l)
	}
	m.current = param
	return m.loaded, nil
}

func (a *addition) load() (*lowRank, error) {
	l := &lowRank{in: int(a.in), out: int(a.out), outIn: a.outIn}
	down, err := a.from.values(a.name + ".lora_A.weight")
	if err != nil {
		return nil, err
	}
	up, err := a.from.values(a.name + ".lora_B.weight")
	if err != nil {
		return nil, err
	}
	rank := len(down) / l.in
	for r := range rank {
		column := make([]float32, l.out)
		for o := range column {
			column[o] = float32(a.factor * float64(up[o*rank+r]))
		}
		l.terms = append(l.terms, term{down[r*l.in : (r+1)*l.in], column})
	}
	return l, nil
}

// findOutputScale computes, for DoRA, what brings each output of the sum to the magnitude
// that was trained: that magnitude over the norm the sum has.
func (l *lowRank) findOutputScale(base Values, weight string, a *addition) error {
	magnitudes, err := a.from.values(a.name + ".lora_magnitude_vector")
	if err != nil {
		return err
	}
	width := l.width()
	row, sums := make([]float32, width), make([]float64, l.out)
	for first := 0; first < l.in*l.out; first += width {
		if err := base.Read(weight, int64(first), row); err != nil {
			return err
		}
		l.add(row, int64(first))
		for i, w := range row {
			sums[l.outputOf(first+i)] += float64(w) * float64(w)
		}
	}
	l.outputScale = make([]float32, l.out)
	for o, s := range sums {
		if s > 0 {
			l.outputScale[o] = float32(float64(magnitudes[o]) / math.Sqrt(s))
		}
	}
	return nil
}
