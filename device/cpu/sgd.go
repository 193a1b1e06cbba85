package cpu

import "spillway/device/cpu/kernel"

func init() { registerUpdate("sgd", func() kernel.Optimizer { return new(kernel.SGD) }) }
