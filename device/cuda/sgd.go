package cuda

import "spillway/op"

func init() { registerUnaligned("sgd", sgd) }

// sgd has kernels of its own for calls without a state.
func sgd(d *Device, c op.Call) (program, error) {
	if len(c.In) == 3 {
		return d.updated(c, "sgdBare", []string{"rate", "decay"})
	}
	return d.updated(c, "sgd", []string{"rate", "decay", "momentum", "fresh", "direct", "through", "has_momentum"})
}
