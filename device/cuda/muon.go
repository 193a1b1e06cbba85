package cuda

import "spillway/op"

func init() {
	registerUnaligned("muon", func(*Device, op.Call) (program, error) {
		return program{}, unsupported("muon updates on CPUs only; train with --device cpu, or take another optimizer, such as adamw")
	})
}
