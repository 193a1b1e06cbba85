package kernel

func seven4AVX512(t *Seven)
func seven7AVX512(t *Seven)
func seven8AVX512(t *Seven)
