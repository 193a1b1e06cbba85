package dtype

// FMA is x·y + z, rounded once: the compiler makes one instruction of it.
func FMA(x, y, z float32) float32 { return x*y + z }
