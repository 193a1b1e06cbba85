package cuda

import "spillway/op"

func init() { registerUnaligned(op.Blend, blend) }

// blend prepares a kernel that mixes gradients or weights of any type into f32 numbers.
func blend(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	args := []arg{buffer(0), buffer(1), buffer(2), i64(n)}
	for _, slot := range c.Kind.Slots("keep", "take", "plain") {
		args = append(args, iteration(slot))
	}
	return single(d.line(unitFor("blend", c.In[1].DType), "blend", d.strideBlocks(n), threads, args...))
}
