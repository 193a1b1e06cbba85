package op

// Sizes are the dimensions that decide how fast a call runs, from which tables of
// measured rates are read:
//
//	products           M, N, K
//	attention          key positions, heads of all samples, width of a head
//	linear losses      rows, vocabulary, width
//	everything else    bytes of traffic
func (c Call) Sizes() []int64 {
	switch c.Kind {
	case MatMul:
		m, n, k := c.MatMulDims()
		return []int64{m, n, k}
	case Attention, AttentionGrad:
		return []int64{c.In[1].Shape[1], c.In[0].Shape[0] * c.Attr.Heads, c.In[0].Shape[2] / c.Attr.Heads}
	case LinearCrossEntropy, LinearCrossEntropyGrad:
		return []int64{c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]}
	}
	return []int64{c.Cost().Bytes}
}

// Axes is how many sizes the calls of a kind have.
func (k Kind) Axes() int {
	switch k {
	case MatMul, Attention, AttentionGrad, LinearCrossEntropy, LinearCrossEntropyGrad:
		return 3
	}
	return 1
}

// Amount is what the rate of a call counts: operations where it runs on matrix units,
// else bytes.
func (c Cost) Amount() float64 {
	if c.Matrix {
		return c.Flops
	}
	return float64(c.Bytes)
}
