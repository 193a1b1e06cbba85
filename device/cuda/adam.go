package cuda

func init() {
	registerUnaligned("adam", update("adam", "couple", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink"))
}
