package cuda

import (
	"strings"
	"testing"

	"spillway/device/devicetest"
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

// Updates that are formulas, blends of gradients and targets that count have the CPU's bits; formulas with
// norms, whose sums are made in another order, nearly so.
func TestFormulasHaveTheCPUsBits(t *testing.T) {
	on := openBoth(t)
	tried := 0
	for _, element := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range op.Cases(element) {
			f := op.FormulaOf(c.Call.Kind)
			if f == nil && c.Call.Kind != op.Blend && c.Call.Kind != op.Counted || element != dtype.F32 && c.Call.Kind != optim.AdEMAMix && c.Call.Kind != op.Blend {
				continue
			}
			tried++
			if err := devicetest.Case(on.gpu, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			if f != nil && len(f.Norms()) > 0 {
				continue
			}
			var operands [][]byte
			for i, o := range c.Call.In {
				if o.DType == dtype.I32 || o.DType.Block() {
					operands = nil
					break
				}
				numbers := spreadNumbers(int(o.Shape.Elements()), uint64(i))
				if i == len(c.Call.In)-1 {
					numbers = []float32{0.75, 2}
				} else if i == len(c.Call.In)-2 && f != nil && f.States > 0 { // the squares
					for k := range numbers {
						numbers[k] *= numbers[k]
					}
				}
				operands = append(operands, raw(t, o.DType, numbers))
			}
			if operands != nil {
				on.same(t, c.Name, c.Call, c.Args, 0, operands...)
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d cases tried", tried)
	}
}
