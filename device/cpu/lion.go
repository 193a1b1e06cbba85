package cpu

import "spillway/device/cpu/kernel"

func init() { registerUpdate("lion", func() kernel.Optimizer { return new(kernel.Lion) }) }
