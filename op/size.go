package op

import "strings"

// Sizes are the dimensions that decide how fast a call runs, from which tables of
// measured rates are read:
//
//	matmul             M, N, K
//	attention          key positions, heads of all samples, width of a head
//	linear losses      rows, vocabulary, width
//	everything else    bytes of traffic
func (c Call) Sizes() []int64 {
	if o := c.Kind.facts(); o.Sizes != nil {
		sizes := o.Sizes(c)
		return sizes[:]
	}
	return []int64{c.Cost().Bytes}
}

// Variant is what tables of measured rates tell apart: a kind, and of attention whether it
// drops weights, which other kernels may compute.
type Variant struct {
	Kind    Kind
	Dropout bool
}

// Variant of a call.
func (c Call) Variant() Variant {
	return Variant{c.Kind, c.Attr.Prob > 0 && (c.Kind == Attention || c.Kind == AttentionGrad)}
}

// Axes is how many sizes its calls have.
func (v Variant) Axes() int {
	if v.Kind.facts().Sizes != nil {
		return 3
	}
	return 1
}

// withDropout ends the names of variants that drop weights.
const withDropout = "+dropout"

// String is the name in tables: "attention", "attention+dropout".
func (v Variant) String() string {
	if v.Dropout {
		return string(v.Kind) + withDropout
	}
	return string(v.Kind)
}

// MarshalText writes the name.
func (v Variant) MarshalText() ([]byte, error) {
	_, err := v.Kind.def()
	return []byte(v.String()), err
}

// UnmarshalText reads the name.
func (v *Variant) UnmarshalText(b []byte) error {
	name, dropout := strings.CutSuffix(string(b), withDropout)
	*v = Variant{Kind(name), dropout}
	_, err := v.Kind.def()
	return err
}

// Amount is what the rate of a call counts: operations where it runs on matrix units,
// else bytes.
func (c Cost) Amount() float64 {
	if c.Matrix {
		return c.Flops
	}
	return float64(c.Bytes)
}
