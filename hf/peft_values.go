package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Values of adapter_config.json that have more than one form. Each is written in the
// form it was read in.

// Modules names some modules: a list of names or their last parts, or instead a regular
// expression of whole names. With neither it is null in JSON.
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

// Layers are numbers of layers.
type Layers struct {
	Numbers []int
	single  bool // it is written as one number, not a list
}

// MarshalJSON writes a list, or a number alone that was read as one.
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

// AdapterInit is how new adapters start: InitDefault, InitGaussian, InitRandom or another
// of PEFT's names.
type AdapterInit string

// The ways adapters start. All but InitRandom add nothing at first.
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
		return fmt.Errorf("%q is not a way that adapters start", name)
	}
	*i = AdapterInit(name)
	return nil
}
