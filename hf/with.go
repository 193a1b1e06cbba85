package hf

import (
	"fmt"
	"maps"
	"slices"
)

// With returns a copy of the config with a value for a key that Config has no field
// for, such as quantization_config.
func (c *Config) With(key string, value any) (*Config, error) {
	for _, f := range fields {
		if slices.Contains(f.keys, key) {
			return nil, fmt.Errorf("%s has a field of Config: set that", key)
		}
	}
	changed := *c
	changed.raw, changed.values = nil, maps.Clone(c.values)
	if err := changed.values.set(key, value); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return &changed, nil
}

// Without returns a copy of the config without a key that Config has no field for.
func (c *Config) Without(key string) *Config {
	changed := *c
	changed.raw, changed.values = nil, maps.Clone(c.values)
	delete(changed.values, key)
	return &changed
}
