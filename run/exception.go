package run

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/nn"
)

// Exception is modules that compute and are stored in a type of their own, whatever
// Precision is and whatever the frozen weights are quantized to. Values are cast where
// they enter and leave such a module; a weight in f32 needs no master weight.
type Exception struct {
	// Modules are names, whole or their last parts ("lm_head", "norm"), or regular
	// expressions of whole names behind "re:".
	Modules []string
	// Type is F32, or the type of Precision, which only keeps them from being quantized:
	// Invalid stands for it.
	Type dtype.Type
}

// except makes the exceptions of the options in a network.
func (o Options) except(net nn.Model) error {
	for _, x := range o.Exceptions {
		t := x.Type
		if t == dtype.Invalid {
			t = o.Precision
		}
		if t != dtype.F32 && t != o.Precision {
			return fmt.Errorf("modules %s in %v: they can be f32, or %v like the rest", strings.Join(x.Modules, ", "), t, o.Precision)
		}
		set, err := nn.NewModuleSet(x.Modules)
		if err != nil {
			return err
		}
		if _, err = nn.Except(net, set.Has, t); err == nil {
			err = set.Unmatched()
		}
		if err != nil {
			return fmt.Errorf("modules in %v: %w", t, err)
		}
	}
	return nil
}
