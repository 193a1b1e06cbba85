package kernel

// relax tells the CPU that this is a waiting loop.
func relax()
