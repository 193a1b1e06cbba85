package cuda

func init() {
	registerUnaligned("rmsprop", update("rmsprop", "couple", "alpha", "rest", "eps", "rate"))
}
