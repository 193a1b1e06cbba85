package arch

import (
	"encoding/json"
	"fmt"
	"math"

	"spillway/hf"
	"spillway/op"
)

// activations by the names of transformers.
var activations = map[string]op.Func{
	"silu": op.SiLU, "swish": op.SiLU, "relu": op.ReLU, "tanh": op.Tanh, "sigmoid": op.Sigmoid,
	"gelu": op.GELU, "gelu_new": op.GELUTanh, "gelu_pytorch_tanh": op.GELUTanh, "gelu_fast": op.GELUTanh,
}

func activation(name string) (op.Func, error) {
	f, ok := activations[name]
	if !ok {
		return 0, fmt.Errorf("activation %q is not supported; use silu, gelu, gelu_new, relu, tanh or sigmoid", name)
	}
	return f, nil
}

// extraConfig reads what hf.Config has no fields for into a struct with the file's keys.
func extraConfig(c *hf.Config, into any) error {
	raw, err := c.Encode()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading config.json: %w", err)
	}
	return nil
}

// positive refuses numbers that are not above 0 and finite.
func positive(name string, x float64) error {
	if !(x > 0 && x <= math.MaxFloat32) {
		return fmt.Errorf("%s is %v, want a number above 0", name, x)
	}
	return nil
}
