package cuda

func init() {
	registerUnaligned("lion", update("lion", "beta1", "rest1", "beta2", "rest2", "rate", "shrink"))
}
