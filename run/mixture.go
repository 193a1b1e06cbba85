package run

import (
	"fmt"
	"strings"

	"spillway/gguf"
	"spillway/nn"
)

// GGUFMixtures names the mixtures of packed types that GGUF files have, such as q4_k_m.
func GGUFMixtures() (names []string) {
	for _, name := range gguf.Recipes() {
		if strings.HasPrefix(name, "q") { // the others are f16 and bf16
			names = append(names, name)
		}
	}
	return names
}

// AsGGUF is a preset whose linear layers have the types that a GGUF file of a mixture would give them, for plans and
// measurements without the file.
func (m *Model) AsGGUF(mixture string) (*Model, error) {
	if m.Folder != nil {
		return nil, &SettingError{Err: fmt.Errorf("%s has weights of its own, which %s is not for: name a preset, or the GGUF file that export or another program wrote", m.Name, mixture)}
	}
	config, err := m.Config()
	if err != nil {
		return nil, err
	}
	types, err := gguf.NewRecipe(mixture, config.Layers, config.Tied)
	if err != nil {
		return nil, err
	}
	own := *m
	own.build = func() (nn.Model, error) {
		net, err := m.build()
		if err == nil {
			_, err = nn.Bind(net)
		}
		if err != nil {
			return nil, err
		}
		linears, err := onlyLinears(net)
		for _, p := range linears {
			file, err := gguf.FileName(p.Name)
			if err != nil {
				return nil, err
			}
			if t := types.Type(file, p.Shape); t.Block() {
				p.Storage, p.Frozen = t, true
			}
		}
		return net, err
	}
	return &own, nil
}
