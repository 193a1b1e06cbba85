package cpu

import "spillway/device/cpu/kernel"

func init() { registerUpdate("adam", func() kernel.Optimizer { return new(kernel.Adam) }) }
