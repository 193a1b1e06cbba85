package arch

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// Published shapes, as the config.json their makers gave them. tiny-*, small-*
// and llama-50m are ours, for demonstrations and benchmarks.
//
//go:embed named/*.json
var presetFiles embed.FS

// Names lists the shapes that are known without files, sorted.
func Presets() []string {
	entries, err := presetFiles.ReadDir("named")
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

// Named is the config.json of a known shape.
func Preset(name string) ([]byte, error) {
	config, err := presetFiles.ReadFile("named/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no model is named %q; known are %s", name, strings.Join(Presets(), ", "))
	}
	return config, nil
}
