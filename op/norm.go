package op

import "fmt"

// RMSNorm: y = x / sqrt(mean(x²) + eps) · w over groups of len(w) elements of the
// last dimension (one group per head when w is a head norm).
//
//	operands  x, w [G] with G dividing the last dimension
func inferRMSNorm(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0, 1), group(in))
}

// RMSNormGrad: operands x, w, dy; outputs dx, dw.
func inferRMSNormGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3); err != nil {
		return nil, err
	}
	if a.InputOnly {
		return []Type{in[0]}, check(float(in, 0, 1), group(in), same(in, 0, 2))
	}
	return []Type{in[0], in[1]}, check(float(in, 0, 1), group(in), same(in, 0, 2))
}

// LayerNorm: y = (x - mean) / sqrt(var + eps) · w (+ b with Attr.Bias).
//
//	operands  x, w [D], b [D]
func inferLayerNorm(a Attr, in []Type) ([]Type, error) {
	want := 2
	if a.Bias {
		want = 3
	}
	if err := arity(in, want); err != nil {
		return nil, err
	}
	if a.Bias {
		if err := same(in, 1, 2); err != nil {
			return nil, err
		}
	}
	return []Type{in[0]}, check(float(in, 0, 1), vector(in, 1, in[0].Shape.Last()))
}

// LayerNormGrad: operands x, w, dy; outputs dx, dw, and db with Attr.Bias.
func inferLayerNormGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3); err != nil {
		return nil, err
	}
	if err := check(float(in, 0, 1), vector(in, 1, in[0].Shape.Last()), same(in, 0, 2)); err != nil {
		return nil, err
	}
	switch {
	case a.InputOnly:
		return []Type{in[0]}, nil
	case a.Bias:
		return []Type{in[0], in[1], in[1]}, nil
	}
	return []Type{in[0], in[1]}, nil
}

// group refuses a norm weight that does not divide the rows.
func group(in []Type) error {
	if len(in[1].Shape) != 1 || in[1].Shape[0] < 1 || in[0].Shape.Last()%in[1].Shape[0] != 0 {
		return fmt.Errorf("weight %v does not divide the last dimension of %v", in[1], in[0])
	}
	return nil
}

func costNorm(c Call) Cost { return Cost{Flops: 8 * float64(c.In[0].Shape.Elements())} }
