package recipe

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
)

// write writes a file: the settings that have values first, then all others with their
// defaults, as comments. set has values by name; parse reads the same values back.
func write(w io.Writer, known []*flag.Flag, set map[string][]string) error {
	var b strings.Builder
	for name := range set {
		if _, err := find(name, known); err != nil {
			return fmt.Errorf("writing a recipe: %w", err)
		}
	}
	for _, k := range known {
		if values, ok := set[k.Name]; ok {
			if err := writeSetting(&b, k, values); err != nil {
				return fmt.Errorf("writing a recipe: %w", err)
			}
		}
	}
	if len(set) < len(known) {
		b.WriteString("\n# Defaults:\n")
	}
	for _, k := range known {
		if _, ok := set[k.Name]; !ok {
			value := k.DefValue
			if isList(k) {
				value = "[" + value + "]"
			}
			fmt.Fprintf(&b, "# %s: %s  # %s\n", k.Name, value, help(k))
		}
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// help of a setting in one line.
func help(k *flag.Flag) string {
	_, text := flag.UnquoteUsage(k)
	return strings.Join(strings.Fields(text), " ")
}

func writeSetting(b *strings.Builder, k *flag.Flag, values []string) error {
	if !isList(k) {
		if len(values) != 1 {
			return fmt.Errorf("%d values of %s, it takes one", len(values), k.Name)
		}
		text, err := scalar(values[0])
		fmt.Fprintf(b, "%s: %s  # %s\n", k.Name, text, help(k))
		return err
	}
	fmt.Fprintf(b, "%s:  # %s\n", k.Name, help(k))
	for _, v := range values {
		text, err := scalar(v)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "  - %s\n", text)
	}
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
