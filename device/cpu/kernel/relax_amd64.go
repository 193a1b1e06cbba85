package kernel

// relax tells the processor that this is a waiting loop.
func relax()
