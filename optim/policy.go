package optim

import (
	"fmt"
	"slices"
	"strings"
)

// Policy compresses optimizer states during a training run: they start in the types the
// optimizer says, and change to those of Codecs after a warm-up. The zero value never does.
type Policy struct {
	Preset string `json:"preset,omitempty"` // "auto", "low-memory" or "max-compression"
	// Warmup is how many iterations pass at least.
	Warmup int `json:"warmup,omitempty"`
	// Patience is for how many iterations in a row the loss must not have been below its
	// lowest by more than Tolerance; 0 waits for nothing but the warm-up.
	Patience  int     `json:"patience,omitempty"`
	Tolerance float64 `json:"tol,omitempty"`

	Codecs      string `json:"codecs,omitempty"` // as those of Config
	Min8BitSize int    `json:"min_8bit_size,omitempty"`
	// Home is where compressed states are stored: "device", "host", or "" for where the
	// plan puts them.
	Home string `json:"home,omitempty"`
}

// Compression is how far a policy has come.
type Compression struct {
	Active bool    `json:"active"` // states are in 16 or 8 bits
	Seen   int64   `json:"seen"`   // losses so far
	Best   float64 `json:"best"`   // the lowest of them
	Stale  int64   `json:"stale"`  // since the last that was lower
}

// presets, the usual first. Of SGD what they say of exp_avg holds for its momentum.
var presets = []Policy{
	{Preset: "auto", Warmup: 100, Tolerance: 1e-3, Codecs: "exp_avg:8bit;momentum_buffer:8bit"},
	{Preset: "low-memory", Warmup: 10, Tolerance: 1e-3, Codecs: "exp_avg:8bit;exp_avg_sq:fp16;momentum_buffer:8bit"},
	{Preset: "max-compression", Tolerance: 1e-3, Codecs: "exp_avg:8bit;exp_avg_sq:8bit;momentum_buffer:8bit", Min8BitSize: 1},
}

// Presets lists the names of policies.
func Presets() (names []string) {
	for _, p := range presets {
		names = append(names, p.Preset)
	}
	return names
}

// ParsePolicy reads "low-memory" or "auto:warmup=50,patience=5,codecs=exp_avg:8bit". An
// empty text is no policy.
func ParsePolicy(text string) (Policy, error) {
	if strings.TrimSpace(text) == "" {
		return Policy{}, nil
	}
	name, tail, _ := strings.Cut(text, ":")
	at := slices.IndexFunc(presets, func(p Policy) bool { return p.Preset == strings.TrimSpace(name) })
	if at < 0 {
		return Policy{}, fmt.Errorf("there is no policy %q for states; there are %s, with options if wanted: auto:warmup=50", name, strings.Join(Presets(), ", "))
	}
	p := presets[at]
	if err := readOptions(p.options(), tail); err != nil {
		return Policy{}, fmt.Errorf("policy %q: %w", text, err)
	}
	return p, p.Check()
}

func (p *Policy) options() []option {
	return []option{{"warmup", &p.Warmup, false}, {"patience", &p.Patience, false}, {"tol", &p.Tolerance, false}, {"codecs", &p.Codecs, false}, {"min_8bit_size", &p.Min8BitSize, false}, {"home", &p.Home, false}}
}

// String writes the policy as ParsePolicy reads it.
func (p Policy) String() string {
	at := slices.IndexFunc(presets, func(q Policy) bool { return q.Preset == p.Preset })
	if at < 0 {
		return p.Preset
	}
	usual := presets[at]
	return writeOptions(p.Preset, p.options(), usual.options())
}

// Check refuses a policy that cannot work.
func (p Policy) Check() error {
	if p == (Policy{}) {
		return nil
	}
	if p.Warmup < 0 || p.Patience < 0 || p.Min8BitSize < 0 || !(p.Tolerance >= 0) {
		return fmt.Errorf("policy %s: warmup %d, patience %d, min_8bit_size %d, tol %v; none can be negative", p.Preset, p.Warmup, p.Patience, p.Min8BitSize, p.Tolerance)
	}
	if !slices.Contains([]string{"", "device", "host"}, p.Home) {
		return fmt.Errorf("policy %s: the home of states is %q; it is device or host, or left out for what the plan says", p.Preset, p.Home)
	}
	if _, err := parseCodecs(p.Codecs); err != nil {
		return fmt.Errorf("policy %s: %w", p.Preset, err)
	}
	return nil
}

// Compressed is the optimizer with states in 16 or 8 bits.
func (p Policy) Compressed(c Config) Config {
	c.Codecs, c.Min8BitSize = p.Codecs, p.Min8BitSize
	return c
}

// Begin is how a policy starts: compressed where it waits for nothing.
func (p Policy) Begin() Compression {
	return Compression{Active: p != (Policy{}) && p.Warmup == 0 && p.Patience == 0}
}

// Next is how far it is after an iteration, counted from 1, and its loss. Once states
// are compressed they stay so.
func (p Policy) Next(was Compression, iteration int64, loss float64) Compression {
	if p == (Policy{}) || was.Active {
		return was
	}
	now := Compression{Seen: was.Seen + 1, Best: was.Best, Stale: was.Stale + 1}
	if was.Seen == 0 || loss < was.Best-p.Tolerance {
		now.Best, now.Stale = loss, 0
	}
	now.Active = iteration >= int64(p.Warmup) && now.Stale >= int64(p.Patience)
	return now
}
