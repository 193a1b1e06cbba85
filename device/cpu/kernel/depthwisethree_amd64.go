package kernel

func three4AVX512(t *Three)
func three2AVX512(t *Three)
func three1AVX512(t *Three)
func threeWeights4AVX512(t *Three)
func threeWeights2AVX512(t *Three)
func threeWeights1AVX512(t *Three)
