package cpu

import "spillway/device/cpu/kernel"

func init() { registerUpdate("rmsprop", func() kernel.Optimizer { return new(kernel.RMSprop) }) }
