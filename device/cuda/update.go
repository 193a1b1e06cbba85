package cuda

import (
	"cmp"
	"fmt"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// storageCodes numbers the types of states, and of the copy of an updated weight, as
// kernels/update.h does.
var storageCodes = map[dtype.Type]int64{dtype.Invalid: 0, dtype.F32: 1, dtype.BF16: 2, dtype.F16: 3, quant.Dyn8: 4, quant.UDyn8: 5}

// copyArgs are the copy of the weight, behind the other outputs, and its type.
func copyArgs(c op.Call) ([]arg, error) {
	kind, known := storageCodes[c.Attr.To]
	if !known {
		return nil, unsupported("copies of the weight as " + c.Attr.To.String() + " are not handled")
	}
	if kind == 0 {
		return []arg{{}, {}}, nil
	}
	return []arg{buffer(len(c.In) + len(c.Out) - 1), i64(kind)}, nil
}

// forms are the endings of kernel names by the type of the states.
var forms = map[dtype.Type]string{dtype.F32: "", dtype.BF16: "BF16", dtype.F16: "F16", quant.Dyn8: "8", quant.UDyn8: "8"}

// mixedForms are the endings for two states of different types, for the mixtures that state
// policies make; other mixtures share a slower kernel.
var mixedForms = map[[2]dtype.Type]string{{quant.Dyn8, dtype.F32}: "8F32", {quant.Dyn8, dtype.F16}: "8F16"}

// update prepares an update whose kernels are in the file of its kind. They take the
// scalars given by name, in that order.
func update(name string, scalars ...string) maker {
	return func(d *Device, c op.Call) (program, error) { return d.updated(c, name, scalars) }
}

// updatedAtOnce is how many elements a block of threads updates at a time: 256 per warp.
const updatedAtOnce = 8 * threads

// updated prepares the kernel of an update. Its parameters are, in order: the weight, an f32 one
// with its copy, the random stream, the gradient, the clip factor, the number of elements, the
// states, and the scalars.
func (d *Device) updated(c op.Call, name string, scalars []string) (program, error) {
	var numbers []arg
	for _, slot := range c.Kind.Slots(scalars...) {
		numbers = append(numbers, iteration(slot))
	}
	return d.updatedWith(c, string(c.Kind), name, numbers)
}

// updatedWith is the same with a kernel of any file, and numbers instead of names.
func (d *Device) updatedWith(c op.Call, file, name string, numbers []arg) (program, error) {
	for _, t := range c.In[2 : len(c.In)-1] {
		if _, known := storageCodes[t.DType]; !known {
			return program{}, unsupported(fmt.Sprintf("states in %v are not handled", t.DType))
		}
	}
	form, moments := stateArgs(c)
	args := []arg{buffer(0)}
	if c.In[0].DType != dtype.BF16 {
		copied, err := copyArgs(c)
		if err != nil {
			return program{}, err
		}
		args = append(args, copied...)
	}
	n := c.In[0].Shape.Elements()
	args = append(append(args, key(), row(), buffer(1), buffer(len(c.In)-1), i64(n)), moments...)
	args = append(args, numbers...)
	blocks := max(1, min(ceilDiv(n, updatedAtOnce), int64(d.gpu.multiprocessors)*16))
	return single(d.line(unitFor(file, c.In[1].DType), name+form, blocks, threads, args...))
}

// stateArgs gives the ending of the kernel's name and the parameters for the states. Kernels
// for mixed types, and for weights in bf16, also take the types as numbers.
func stateArgs(c op.Call) (form string, args []arg) {
	kept := c.In[2 : len(c.In)-1]
	var types []arg
	for i, t := range kept {
		args, types = append(args, buffer(2+i)), append(types, i64(storageCodes[t.DType]))
		form = forms[t.DType]
	}
	if len(kept) == 2 && form != forms[kept[0].DType] {
		form = cmp.Or(mixedForms[[2]dtype.Type{kept[0].DType, kept[1].DType}], "Mixed")
	}
	if c.In[0].DType == dtype.BF16 {
		form = pureForm(kept)
	}
	if form == "Mixed" || form == "Pure" {
		args = append(args, types...)
	}
	return form, args
}

// pureForm is the ending where the weight is in bf16. Adam with both states in bf16 has a
// kernel of its own; others take the types of the states.
func pureForm(kept []op.Type) string {
	if len(kept) == 2 && kept[0].DType == dtype.BF16 && kept[1].DType == dtype.BF16 {
		return "PureBF16"
	}
	return "Pure"
}
