package arch

import (
	"fmt"
	"math"
	"strings"

	"spillway/dtype"
	"spillway/op"
)

// Largest numbers a config may name. They are far above anything published, and
// keep what a model is built of in proportion: a hostile file can at most ask for
// a few megabytes of structs, and no product of two of them overflows.
const (
	maxLayers = 4096
	maxWidth  = 1 << 22
	maxVocab  = 1 << 28
	maxHeads  = 1 << 14
	maxHead   = 1 << 14 // elements of a head
	maxSeq    = 1 << 31
)

// bound is a number of a config and the largest it may be.
type bound struct {
	name       string
	value, max int64
}

// inBounds refuses numbers that are not from 1 to their maximum.
func inBounds(all ...bound) error {
	for _, b := range all {
		if b.value < 1 || b.value > b.max {
			return fmt.Errorf("%s is %d, want 1 to %d", b.name, b.value, b.max)
		}
	}
	return nil
}

// fraction refuses drop probabilities outside 0 ≤ p < 1.
func fraction(name string, p float64) error {
	if !(p >= 0 && p < 1) {
		return fmt.Errorf("%s is %v, want 0 ≤ p < 1", name, p)
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

// firstError returns the first error.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

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

// torchType reads the dtype words of a config, of old and new versions.
func torchType(names ...string) (dtype.Type, error) {
	for _, name := range names {
		if name != "" {
			return dtype.Parse(strings.TrimPrefix(name, "torch."))
		}
	}
	return dtype.Invalid, nil
}
