package recipe

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// write writes a file: the settings that have values first, then all others with their
// defaults, as comments. set has values by name; parse reads the same values back.
func write(w io.Writer, known []key, set map[string][]string) error {
	var b strings.Builder
	for name := range set {
		if _, err := find(name, known); err != nil {
			return fmt.Errorf("writing a recipe: %w", err)
		}
	}
	for _, k := range known {
		if values, ok := set[k.name]; ok {
			if err := writeSetting(&b, k, values); err != nil {
				return fmt.Errorf("writing a recipe: %w", err)
			}
		}
	}
	others := slices.DeleteFunc(slices.Clone(known), func(k key) bool { _, ok := set[k.name]; return ok })
	if len(others) > 0 {
		b.WriteString("\n# Defaults:\n")
	}
	for _, k := range others {
		fmt.Fprintf(&b, "# %s: %s  # %s\n", k.name, k.value, k.help)
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

func writeSetting(b *strings.Builder, k key, values []string) error {
	if k.list {
		fmt.Fprintf(b, "%s:  # %s\n", k.name, k.help)
		for _, v := range values {
			text, err := scalar(v)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "  - %s\n", text)
		}
		return nil
	}
	if len(values) != 1 {
		return fmt.Errorf("%d values of %s, it takes one", len(values), k.name)
	}
	text, err := scalar(values[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s: %s  # %s\n", k.name, text, k.help)
	return nil
}

// plain are the characters of values that need no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._/"

// scalar is a value as YAML writes it.
func scalar(v string) (string, error) {
	if v != "" && strings.Trim(v, plain) == "" && v[0] != '-' && v != "null" {
		return v, nil
	}
	text, err := yaml.MarshalWithOptions(v, yaml.JSON())
	return strings.TrimSuffix(string(text), "\n"), err
}
