package op

// IDs describes the operand of a call that names rows of a table or classes.
type IDs struct {
	Operand       int
	Count         int64 // ids run from 0 up to this
	AllowsIgnored bool  // Ignored is allowed too
}

// IDs of a call; ok is false where it has none. Kernels clamp ids that are outside,
// so whoever makes batches must look.
func (c Call) IDs() (ids IDs, ok bool) {
	switch c.Kind {
	case Embedding:
		return IDs{Operand: 0, Count: c.In[1].Shape[0]}, true
	case LinearCrossEntropy, LinearCrossEntropyGrad:
		return IDs{Operand: 2, Count: c.In[1].Shape[0], AllowsIgnored: true}, true
	case CrossEntropy, CrossEntropyGrad:
		return IDs{Operand: 1, Count: c.In[0].Shape.Last(), AllowsIgnored: true}, true
	}
	return IDs{}, false
}
