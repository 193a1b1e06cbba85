package op

import "fmt"

// Kind names an op.
type Kind uint8

// The kinds, by family.
const (
	Invalid Kind = iota

	MatMul

	Embedding
	EmbeddingGrad

	Copy
	Add
	Mul
	Scale
	Unary
	UnaryGrad
	Gated
	GatedGrad
	Dropout
	Cast
	Dequantize
	Split
	Concat
	SumRows

	RMSNorm
	RMSNormGrad
	LayerNorm
	LayerNormGrad

	Rope
	Attention
	AttentionGrad

	LinearCrossEntropy
	LinearCrossEntropyGrad
	CrossEntropy
	CrossEntropyGrad
	MeanSquare
	MeanSquareGrad

	SumSquares
	ClipScale
	Adam
	SGD

	kinds
)

// def is what is known of a kind whatever the device.
type def struct {
	name  string
	infer func(Attr, []Type) ([]Type, error)
	cost  func(Call) Cost // nil: one operation per output element
	// accumulates tells which outputs obey Attr.Accumulate; nil for none.
	accumulates func(Attr) []int
}

var defs = [kinds]def{
	MatMul: {"matmul", inferMatMul, costMatMul, first},

	Embedding:     {"embedding", inferEmbedding, costEmbedding, nil},
	EmbeddingGrad: {"embedding_grad", inferEmbeddingGrad, costEmbeddingGrad, first},

	Copy:       {"copy", inferCopy, nil, first},
	Add:        {"add", inferBroadcast, nil, first},
	Mul:        {"mul", inferBroadcast, nil, first},
	Scale:      {"scale", inferCopy, nil, first},
	Unary:      {"unary", inferUnary, costUnary, nil},
	UnaryGrad:  {"unary_grad", inferUnaryGrad, costUnary, nil},
	Gated:      {"gated", inferGated, costUnary, nil},
	GatedGrad:  {"gated_grad", inferGatedGrad, costUnary, nil},
	Dropout:    {"dropout", inferDropout, nil, nil},
	Cast:       {"cast", inferCast, nil, nil},
	Dequantize: {"dequantize", inferDequantize, nil, nil},
	Split:      {"split", inferSplit, nil, nil},
	Concat:     {"concat", inferConcat, nil, nil},
	SumRows:    {"sum_rows", inferSumRows, costSumRows, first},

	RMSNorm:       {"rms_norm", inferRMSNorm, costNorm, nil},
	RMSNormGrad:   {"rms_norm_grad", inferRMSNormGrad, costNorm, rest},
	LayerNorm:     {"layer_norm", inferLayerNorm, costNorm, nil},
	LayerNormGrad: {"layer_norm_grad", inferLayerNormGrad, costNorm, rest},

	Rope:          {"rope", inferRope, nil, nil},
	Attention:     {"attention", inferAttention, costAttention, nil},
	AttentionGrad: {"attention_grad", inferAttentionGrad, costAttentionGrad, nil},

	LinearCrossEntropy:     {"linear_cross_entropy", inferLinearCrossEntropy, costLinearCrossEntropy, nil},
	LinearCrossEntropyGrad: {"linear_cross_entropy_grad", inferLinearCrossEntropyGrad, costLinearCrossEntropyGrad, third},
	CrossEntropy:           {"cross_entropy", inferCrossEntropy, costCrossEntropy, nil},
	CrossEntropyGrad:       {"cross_entropy_grad", inferCrossEntropyGrad, costCrossEntropy, nil},
	MeanSquare:             {"mean_square", inferMeanSquare, costCrossEntropy, nil},
	MeanSquareGrad:         {"mean_square_grad", inferMeanSquareGrad, nil, nil},

	SumSquares: {"sum_squares", inferSumSquares, costSumRows, first},
	ClipScale:  {"clip_scale", inferClipScale, nil, nil},
	Adam:       {"adam", inferAdam, costUpdate, nil},
	SGD:        {"sgd", inferSGD, costUpdate, nil},
}

func first(Attr) []int { return []int{0} }

// rest: all outputs but the gradient of the input, which comes first.
func rest(a Attr) []int {
	switch {
	case a.InputOnly:
		return nil
	case a.Bias:
		return []int{1, 2}
	}
	return []int{1}
}

// third: outputs are loss, gradient of the input, gradient of the parameter.
func third(a Attr) []int {
	if a.InputOnly {
		return nil
	}
	return []int{2}
}

func (k Kind) def() (def, error) {
	if k == Invalid || k >= kinds {
		return def{}, fmt.Errorf("op kind %d does not exist", uint8(k))
	}
	return defs[k], nil
}

// Kinds lists all kinds.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := Invalid + 1; k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// Accumulates lists the outputs that obey Attr.Accumulate.
func (k Kind) Accumulates(a Attr) []int {
	d, err := k.def()
	if err != nil || d.accumulates == nil {
		return nil
	}
	return d.accumulates(a)
}

// String is the name in plans and errors: "matmul".
func (k Kind) String() string {
	d, err := k.def()
	if err != nil {
		return fmt.Sprintf("op(%d)", uint8(k))
	}
	return d.name
}

// MarshalText writes the name.
func (k Kind) MarshalText() ([]byte, error) {
	d, err := k.def()
	return []byte(d.name), err
}

// UnmarshalText reads the name.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, d := range defs {
		if d.name != "" && d.name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown op kind %q", b)
}
