package spillway

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/nn"
)

// Kept are modules that are an exception: they, and what is inside them, compute in a type
// and rest in it, whatever Precision is and whatever the base rests in. Values are cast
// where they enter and leave such a module; a weight that is kept in f32 needs no master.
type Exception struct {
	// Modules are names, whole or their last parts ("lm_head", "norm"), or regular
	// expressions of whole names behind "re:".
	Modules []string
	// Type is F32, or the type of Precision, which only keeps them from being quantized:
	// Invalid stands for it.
	Type dtype.Type
}

// keep makes the exceptions of the options in a network.
func (o Options) keep(net nn.Model) error {
	for _, k := range o.Exceptions {
		t := k.Type
		if t == dtype.Invalid {
			t = o.Precision
		}
		if t != dtype.F32 && t != o.Precision {
			return fmt.Errorf("keeping %s in %v: it can be f32, or %v as the rest", strings.Join(k.Modules, ", "), t, o.Precision)
		}
		if err := k.apply(net, t); err != nil {
			return err
		}
	}
	return nil
}

func (k Exception) apply(net nn.Model, t dtype.Type) error {
	chosen, err := nn.NewModuleSet(k.Modules)
	if err != nil {
		return err
	}
	if _, err = nn.Except(net, chosen.Has, t); err == nil {
		err = chosen.Unmatched()
	}
	if err != nil {
		return fmt.Errorf("keeping modules in %v: %w", t, err)
	}
	return nil
}
