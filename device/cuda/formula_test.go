package cuda

import (
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// Kernels that are made from formulas compile, for every type of gradients.
func TestFormulasCompile(t *testing.T) {
	c := compiler(t)
	for i, kind := range []op.Kind{optim.AdEMAMix, optim.LAMB, optim.LARS, optim.ScheduleFree, optim.AdamBounded} {
		element := []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}[i%3]
		u := unit{file: string(kind), text: formulaSource(op.FormulaOf(kind)), element: element}
		if image, err := u.compile(c, 9, 0); err != nil || !strings.HasPrefix(string(image), "\x7fELF") {
			t.Errorf("%s with gradients in %v: %d bytes, %v", kind, element, len(image), err)
		}
	}
}
