package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The types in this file are values of adapter_config.json that have more than one form.
// Each is written in the form in which it was read.

// Modules names modules: by a list of names, or of the ends of names such as "q_proj", or
// by a regular expression that must match the whole name. Without either it is null in
// JSON.
type Modules struct {
	Names   []string
	Pattern string
}

// MarshalJSON writes the pattern as a string, names as a list.
func (m Modules) MarshalJSON() ([]byte, error) {
	if m.Pattern != "" {
		return json.Marshal(m.Pattern)
	}
	return json.Marshal(m.Names)
}

// UnmarshalJSON reads both forms.
func (m *Modules) UnmarshalJSON(text []byte) error {
	*m = Modules{}
	if bytes.HasPrefix(text, []byte("[")) {
		return json.Unmarshal(text, &m.Names)
	}
	return json.Unmarshal(text, &m.Pattern)
}

// Layers is a list of layer numbers.
type Layers struct {
	Numbers []int
	single  bool // written as one number, not as a list
}

// MarshalJSON writes a list, or a single number if it was read as one.
func (l Layers) MarshalJSON() ([]byte, error) {
	if l.single && len(l.Numbers) == 1 {
		return json.Marshal(l.Numbers[0])
	}
	return json.Marshal(l.Numbers)
}

// UnmarshalJSON reads both forms.
func (l *Layers) UnmarshalJSON(text []byte) error {
	*l = Layers{}
	if bytes.HasPrefix(text, []byte("[")) {
		return json.Unmarshal(text, &l.Numbers)
	}
	l.single, l.Numbers = true, []int{0}
	return json.Unmarshal(text, &l.Numbers[0])
}

// AdapterInit is how new adapters are initialized: InitDefault, InitGaussian,
// InitRandom or another of PEFT's names.
type AdapterInit string

// The initializations. With all but InitRandom, a new adapter does not change the model.
const (
	InitDefault  AdapterInit = "true"     // A uniform within 1/√in, B zero
	InitGaussian AdapterInit = "gaussian" // A normal with deviation 1/rank, B zero
	InitRandom   AdapterInit = "false"    // A uniform within 1/√in, B within 1/√rank
)

// MarshalJSON writes true, false or a name.
func (i AdapterInit) MarshalJSON() ([]byte, error) {
	if i == InitDefault || i == InitRandom {
		return []byte(i), nil
	}
	return json.Marshal(string(i))
}

// UnmarshalJSON reads all forms.
func (i *AdapterInit) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		*i = AdapterInit(text)
		return nil
	}
	var name string
	if err := json.Unmarshal(text, &name); err != nil {
		return err
	}
	if name == "" || name == "true" || name == "false" {
		return fmt.Errorf("%q is not an initialization of adapters", name)
	}
	*i = AdapterInit(name)
	return nil
}
