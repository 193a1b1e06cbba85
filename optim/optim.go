// Package optim is the host side of optimizers: which there are, their
// hyper-parameters, what state each keeps, learning-rate schedules, clipping, and
// which params decay. Everything is a pure function of plain data.
//
// Update is the plain, right form of each update rule, for tests and for whoever
// writes a kernel. It is defined to the bit: every operation is rounded to
// float32, in the written order, never fused. Kernels are held to it within
// rounding; those that keep its order as well give the same bits on every device.
// Its numbers for one iteration are the scalars of op.Adam, op.SGD and op.Lion.
package optim

import (
	"fmt"
	"math"
	"strings"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Names of state tensors, as PyTorch calls them.
const (
	ExpAvg         = "exp_avg"         // running mean of gradients
	ExpAvgSq       = "exp_avg_sq"      // running mean of their squares
	MomentumBuffer = "momentum_buffer" // SGD's decaying sum of gradients
)

// Config is an optimizer with its hyper-parameters, called as PyTorch calls them.
// Those that the named rule does not use stay zero.
type Config struct {
	Name        string  `json:"name"` // "adamw", "adam", "sgd", "lion" or "adafactor"
	LR          float64 `json:"lr"`
	Beta1       float64 `json:"beta1,omitempty"`
	Beta2       float64 `json:"beta2,omitempty"`
	Eps         float64 `json:"eps,omitempty"`
	WeightDecay float64 `json:"weight_decay"`
	Momentum    float64 `json:"momentum,omitempty"`
	Dampening   float64 `json:"dampening,omitempty"`
	Nesterov    bool    `json:"nesterov,omitempty"`

	// Of Adafactor, called as transformers calls them; LeastScale is the second of eps.
	MinScale       float64 `json:"eps2,omitempty"`
	ClipThreshold  float64 `json:"clip_threshold,omitempty"`
	DecayRate      float64 `json:"decay_rate,omitempty"`
	ScaleParameter bool    `json:"scale_parameter,omitempty"`
	RelativeStep   bool    `json:"relative_step,omitempty"`
	WarmupInit     bool    `json:"warmup_init,omitempty"`

	// Storage of states: BF16, F16, Dyn8 for 8 bits in blocks, or F32, which is also
	// the zero value.
	Storage dtype.Type `json:"storage,omitempty"`
	// Codecs are exceptions from Storage by state, "exp_avg:8bit;exp_avg_sq:fp16".
	Codecs string `json:"codecs,omitempty"`
	// LeastCoded is how many elements a param must have for states in 8 bits; smaller
	// ones keep f32. 0 counts as 4096.
	Min8BitSize int `json:"min_8bit_size,omitempty"`
	// StatesOf are exceptions from both by param, "embeddings:f32;lm_head:bf16": biases,
	// norms, embeddings, or a regular expression that matches a part of a param's
	// name. The first that matches counts.
	StateExceptions string `json:"states_of,omitempty"`
}

// rule is one kind of optimizer; each has a file of its own.
type rule struct {
	defaults Config // PyTorch's
	kind     op.Kind
	options  func(*Config) []option
	states   func(Config) []string                    // of a param's own shape
	factored func(shape.Shape) []op.State             // and of others; nil for none
	args     func(c Config, iteration int) op.Scalars // all but rate and decay
	// rate of an iteration from the one asked for; nil takes that.
	rate   func(c Config, iteration int, rate float64) float64
	update func(c Config, f op.Scalars, clip float32, w, g []float32, states [][]float32)
}

var rules = []rule{adamW, adam, sgd, lion, adafactor}

// Names lists the optimizers.
func Names() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.defaults.Name
	}
	return names
}

func find(name string) (rule, error) {
	for _, r := range rules {
		if r.defaults.Name == name {
			return r, nil
		}
	}
	return rule{}, fmt.Errorf("there is no optimizer %q; there are %s", name, strings.Join(Names(), ", "))
}

// Parse reads "adamw" or "adamw_8bit:lr=3e-4,beta2=0.95,weight_decay=0.1", and the
// names other trainers have for the same. What is left out is as in PyTorch.
func Parse(text string) (Config, error) {
	name, tail, _ := strings.Cut(text, ":")
	r, storage, err := findByName(name)
	if err != nil {
		return Config{}, fmt.Errorf("optimizer %q: %w", text, err)
	}
	c := r.defaults
	c.Storage = storage
	if err := readOptions(r.all(&c), tail); err != nil {
		return Config{}, fmt.Errorf("optimizer %q: %w", text, err)
	}
	return c, c.Check()
}

// String writes the optimizer as Parse reads it, without what is at its default.
func (c Config) String() string {
	r, err := find(c.Name)
	if err != nil {
		return c.Name
	}
	return writeOptions(c.Name+c.storageName(), r.all(&c), r.all(&r.defaults))
}

// Check refuses hyper-parameters that cannot work.
func (c Config) Check() error {
	if _, err := find(c.Name); err != nil {
		return err
	}
	for _, v := range []struct {
		name  string
		value float64
		below float64 // what it must be below, in float32
	}{
		{"lr", c.LR, math.MaxFloat32}, {"beta1", c.Beta1, 1}, {"beta2", c.Beta2, 1}, {"eps", c.Eps, math.MaxFloat32},
		{"weight_decay", c.WeightDecay, math.MaxFloat32}, {"eps2", c.MinScale, math.MaxFloat32}, {"clip_threshold", c.ClipThreshold, math.MaxFloat32},
		{"decay_rate", -c.DecayRate, math.MaxFloat32}, {"momentum", c.Momentum, math.MaxFloat32}, {"dampening", c.Dampening, math.MaxFloat32},
	} {
		if !(v.value >= 0) || float64(float32(v.value)) >= v.below {
			return fmt.Errorf("optimizer %s: %s is %v; it must be at least 0 and below %v", c.Name, v.name, v.value, v.below)
		}
	}
	if c.Name == adafactor.defaults.Name && !(c.ClipThreshold > 0) {
		return fmt.Errorf("optimizer %s: clip_threshold is %v; it must be above 0", c.Name, c.ClipThreshold)
	}
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		return fmt.Errorf("optimizer %s: nesterov with momentum %v and dampening %v; it needs momentum above 0 and no dampening", c.Name, c.Momentum, c.Dampening)
	}
	return c.checkStates()
}

// all options of a rule.
func (r rule) all(c *Config) []option {
	return append(r.options(c), option{"codecs", &c.Codecs}, option{"min_8bit_size", &c.Min8BitSize}, option{"states_of", &c.StateExceptions})
}

// States names the state tensors of a param's own shape; see Keeping for all and their
// types.
func (c Config) States() []string {
	r, err := find(c.Name)
	if err != nil {
		return nil
	}
	return r.states(c)
}

// Op is the op that devices run for this optimizer.
func (c Config) Op() (op.Kind, op.Attr, error) {
	r, err := find(c.Name)
	return r.kind, op.Attr{Decoupled: c.Name == adamW.defaults.Name, Nesterov: c.Nesterov}, err
}

// Args are the scalars of one iteration, counted from 1, at the given rate, in
// the places that package op names. A param that does not decay has decay 0.
func (c Config) Args(iteration int, rate float64, decays bool) (op.Scalars, error) {
	r, err := find(c.Name)
	if err != nil {
		return op.Scalars{}, err
	}
	if iteration < 1 {
		return op.Scalars{}, fmt.Errorf("optimizer %s: iteration %d; they count from 1", c.Name, iteration)
	}
	f := r.args(c, iteration)
	if r.rate != nil {
		rate = r.rate(c, iteration, rate)
	}
	f[op.ArgRate] = float32(rate)
	if decays {
		f[op.ArgDecay] = float32(c.WeightDecay)
	}
	return f, nil
}

// Update applies one iteration to weights w with gradients g, in place: f comes
// from Args, clip from Clip, the states are those of States, in that order.
func (c Config) Update(f op.Scalars, clip float32, w, g []float32, states ...[]float32) error {
	r, err := find(c.Name)
	if err != nil {
		return err
	}
	if r.update == nil {
		return fmt.Errorf("optimizer %s: its plain form is the reference of op %s, for it needs params whole", c.Name, r.kind)
	}
	if want := c.States(); len(states) != len(want) {
		return fmt.Errorf("optimizer %s: %d state tensors given, it keeps %d: %s", c.Name, len(states), len(want), strings.Join(want, ", "))
	}
	for _, s := range append([][]float32{g}, states...) {
		if len(s) != len(w) {
			return fmt.Errorf("optimizer %s: %d weights beside %d gradients or states; all must be the same", c.Name, len(w), len(s))
		}
	}
	r.update(c, f, clip, w, g, states)
	return nil
}
