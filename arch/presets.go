package arch

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"spillway/internal/suggest"
)

// presetFiles are published models, as the config.json their makers gave them. tiny-*, small-*
// and llama-50m are ours, for demonstrations and benchmarks.
//
//go:embed presets/*.json
var presetFiles embed.FS

// Presets lists the names of models that are known without files, sorted.
func Presets() []string {
	entries, err := presetFiles.ReadDir("presets")
	if err != nil { // the folder is part of the binary
		panic(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	slices.Sort(names)
	return names
}

// Preset is the config.json of a published model, by its name.
func Preset(name string) ([]byte, error) {
	config, err := presetFiles.ReadFile("presets/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("there is no folder and no preset %q%s; known are %s", name, PresetHint(name), strings.Join(Presets(), ", "))
	}
	return config, nil
}

// PresetHint says which preset a name may mean: "; did you mean llama-3-8b?", or nothing.
func PresetHint(name string) string {
	wanted := strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]) // of meta-llama/Llama-3.1-8B
	return suggest.Hint(wanted, Presets())
}
