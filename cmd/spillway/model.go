package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spillway/arch"
	"spillway/nn"
)

// modelHelp explains the MODEL argument.
const modelHelp = `MODEL is a folder in Hugging Face's layout, a config.json, or the name of a
published shape such as llama-3-8b, for which no files are needed. Where a
folder and a shape have the same name, the folder is meant.`

// model is what MODEL names.
type model struct {
	name string // for people: the shape's or the folder's
	dir  string // "" where there are no files
	nn   nn.Model
	info arch.Info
	json []byte // its config.json
}

// openModel finds the MODEL argument.
func openModel(arg string) (*model, error) {
	m := &model{name: filepath.Base(filepath.Clean(arg))}
	stat, err := os.Stat(arg)
	switch {
	case err == nil && stat.IsDir():
		m.dir = arg
		m.json, err = os.ReadFile(filepath.Join(arg, "config.json"))
	case err == nil:
		m.name = strings.TrimSuffix(m.name, ".json")
		m.json, err = os.ReadFile(arg)
	case errors.Is(err, fs.ErrNotExist):
		m.json, err = arch.Named(arg)
	}
	if err != nil {
		return nil, fmt.Errorf("opening model %s: %w", arg, err)
	}
	if m.nn, m.info, err = arch.FromConfig(m.json); err != nil {
		return nil, fmt.Errorf("opening model %s: %w", arg, err)
	}
	return m, nil
}
