// Package optim is the host side of optimizers: which there are, their
// hyper-parameters, their state, learning-rate schedules, clipping, and which params
// decay. Everything is a pure function of plain data.
//
// An optimizer is one file: a Rule that is registered (hyper-parameters, states, the
// numbers of an iteration) and the Update that devices run for it (the op with its plain
// step and its test cases). Backends add a kernel file each.
//
// The plain step is defined to the bit: multiplications and sums are rounded to float32 as
// written, dtype.FMA rounds once. Kernels give exactly these bits, on every device, so
// that a plan may choose who updates; tests in device/cpu and device/cuda hold them to
// it. Adafactor and Muon, whose steps need sums over a whole param, are the exceptions: their
// references are float64, kernels follow them within rounding, and only devices update with them.
package optim

import (
	"encoding/json"
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/op"
)

// Names of state tensors, as PyTorch calls them.
const (
	ExpAvg         = "exp_avg"         // running mean of gradients
	ExpAvgSq       = "exp_avg_sq"      // running mean of their squares
	SquareAvg      = "square_avg"      // the same, of RMSprop
	SquareSum      = "sum"             // the sum of all squares, of Adagrad
	MomentumBuffer = "momentum_buffer" // SGD's decaying sum of gradients
)

// Config is an optimizer with its hyper-parameters. Parse makes one.
type Config struct {
	Name        string // of the rule: "adamw"
	LR          float64
	WeightDecay float64
	// values of the rule's own options, in its order; see Get and Set.
	values [maxOptions]float64

	// Storage of states: BF16, F16, Dyn8 for 8 bits in blocks, or F32, which is also
	// the zero value.
	Storage dtype.Type
	// Codecs are exceptions from Storage by state, "exp_avg:8bit;exp_avg_sq:fp16".
	Codecs string
	// Min8BitSize is how many elements a param must have for states in 8 bits; smaller
	// ones have f32. 0 counts as 4096.
	Min8BitSize int
	// StateExceptions are exceptions from both by param, "embeddings:f32;lm_head:bf16":
	// biases, norms, embeddings, or a regular expression that matches a part of a
	// param's name. The first that matches counts.
	StateExceptions string
}

// Parse reads "adamw" or "adamw_8bit:lr=3e-4,beta2=0.95,weight_decay=0.1", and the
// names other trainers have for the same. What is left out is as in PyTorch. The error of
// "help" lists all optimizers with their options.
func Parse(text string) (Config, error) {
	if strings.TrimSpace(text) == "help" {
		return Config{}, fmt.Errorf("optimizers and their options:\n%s", help())
	}
	name, tail, _ := strings.Cut(text, ":")
	r, storage, err := findByName(name)
	if err != nil {
		return Config{}, fmt.Errorf("optimizer %q: %w", text, err)
	}
	c := r.defaults()
	c.Storage = storage
	if err := readOptions(r.options(&c), tail); err != nil {
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
	usual := r.defaults()
	return writeOptions(c.Name+c.storageName(), r.options(&c), r.options(&usual))
}

// Get is the value of a hyper-parameter; 0 of one that the optimizer does not have.
func (c Config) Get(name string) float64 {
	if r, err := find(c.Name); err == nil {
		o, _ := findOption(r.options(&c), name)
		if v, is := o.target.(*float64); is {
			return *v
		}
	}
	return 0
}

// Set changes a hyper-parameter; flags are 0 or 1. It is an error where the optimizer
// does not have it.
func (c *Config) Set(name string, value float64) error {
	r, err := find(c.Name)
	if err != nil {
		return err
	}
	o, err := findOption(r.options(c), name)
	if err != nil {
		return fmt.Errorf("optimizer %s: %w", c.Name, err)
	}
	v, is := o.target.(*float64)
	if !is {
		return fmt.Errorf("optimizer %s: %s is not a number", c.Name, name)
	}
	*v = value
	return nil
}

// MarshalJSON writes the hyper-parameters by their names: {"name": "adamw", "lr": ...}.
func (c Config) MarshalJSON() ([]byte, error) {
	m := map[string]any{"name": c.Name}
	if c.Storage != dtype.Invalid {
		m["storage"] = c.Storage
	}
	if r, err := find(c.Name); err == nil {
		for _, o := range r.options(&c) {
			m[o.name] = o.target
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes and refuses names it does not know.
func (c *Config) UnmarshalJSON(b []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*c = Config{}
	if err := json.Unmarshal(b, &struct{ Name *string }{&c.Name}); err != nil || c.Name == "" {
		return err
	}
	r, err := find(c.Name)
	if err != nil {
		return err
	}
	options := append(r.options(c), option{"name", &c.Name, false}, option{"storage", &c.Storage, false})
	for name, raw := range m {
		o, err := findOption(options, name)
		if err != nil {
			return fmt.Errorf("optimizer %s: %w", c.Name, err)
		}
		if err := json.Unmarshal(raw, o.target); err != nil {
			return fmt.Errorf("optimizer %s: %s: %w", c.Name, name, err)
		}
	}
	return nil
}

// Check refuses hyper-parameters that cannot work.
func (c Config) Check() error {
	r, err := find(c.Name)
	if err != nil {
		return err
	}
	if err := r.check(c); err != nil {
		return err
	}
	return c.checkStates(r)
}

// States names the state tensors of a param's own shape; see StatesFor for all and their
// types.
func (c Config) States() []string {
	r, err := find(c.Name)
	if err != nil {
		return nil
	}
	return r.States(c)
}

// Kind is the op that devices run for this optimizer.
func (c Config) Kind() (op.Kind, error) {
	r, err := find(c.Name)
	if err != nil {
		return "", err
	}
	return r.kind(c), nil
}

// Rate is the learning rate an iteration is made with, where lr is the schedule's. Updates round it to f32.
func (c Config) Rate(iteration int, lr float64) float64 {
	if r, err := find(c.Name); err == nil && r.Rate != nil {
		lr = r.Rate(c, iteration, lr)
	}
	return lr
}

// Scalars are the numbers of one iteration, counted from 1, at the schedule's learning
// rate, under the names that the op gives them. decays is false for params that weight
// decay leaves alone.
func (c Config) Scalars(iteration int, lr float64, decays bool) (op.Scalars, error) {
	r, err := find(c.Name)
	if err != nil {
		return op.Scalars{}, err
	}
	if iteration < 1 {
		return op.Scalars{}, fmt.Errorf("optimizer %s: iteration %d; they count from 1", c.Name, iteration)
	}
	var decay float32
	if decays {
		decay = float32(c.WeightDecay)
	}
	return r.Scalars(c, iteration, float32(c.Rate(iteration, lr)), decay), nil
}

// Update applies one iteration to weights w with gradients g, in place, bit for bit as
// kernels do where the states are f32: s comes from Scalars, clip from Clip, the states
// are those of States, in that order.
func (c Config) Update(s op.Scalars, clip float32, w, g []float32, states ...[]float32) error {
	r, err := find(c.Name)
	if err != nil {
		return err
	}
	u := updates[r.kind(c)]
	if u == nil {
		return fmt.Errorf("optimizer %s: its plain form is the reference of op %s, for it needs params whole", c.Name, r.kind(c))
	}
	if want := c.States(); len(states) != len(want) {
		return fmt.Errorf("optimizer %s: %d state tensors given, it has %d: %s", c.Name, len(states), len(want), strings.Join(want, ", "))
	}
	for _, list := range append([][]float32{g}, states...) {
		if len(list) != len(w) {
			return fmt.Errorf("optimizer %s: %d weights with %d gradients or states; all must be the same", c.Name, len(w), len(list))
		}
	}
	cells, step := make([]Cell, len(states)), u.Step
	if u.Formula != nil {
		step = formulaStep(u.Formula, formulaNorms(u.Formula, &s, len(w), func(i int, values []float32) bool {
			values[0], values[1] = w[i], g[i]*clip
			for k := range states {
				values[2+k] = states[k][i]
			}
			return true
		}))
	}
	for i := range w {
		for k := range cells {
			cells[k] = Cell{states[k][i], true}
		}
		w[i] = step(&s, w[i], g[i]*clip, cells)
		for k := range cells {
			states[k][i] = cells[k].Value
		}
	}
	return nil
}
