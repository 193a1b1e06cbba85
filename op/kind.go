package op

import "fmt"

// Kind names an op.
type Kind uint8

// The kinds, by family.
const (
	Invalid Kind = iota

	MatMul
	QuantizedMatmul
	InverseNorm

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
	Lion
	Adafactor

	kinds
)

// def is what is known of a kind whatever the device.
type def struct {
	name  string
	infer func(Attr, []Type) ([]Type, error)
	cost  func(Call) Cost // nil: one operation per output element
	// accumulates tells which outputs obey Attr.Accumulate; nil for none.
	accumulates func(Attr) []int
	reference   reference
}

var defs = [kinds]def{
	MatMul:          {"matmul", inferMatMul, costMatMul, matMulAccumulates, referenceMatMul},
	QuantizedMatmul: {"coded_product", inferQuantizedMatmul, costQuantizedMatmul, nil, referenceQuantizedMatmul},
	InverseNorm:     {"inverse_norm", inferInverseNorm, costInverseNorm, nil, referenceInverseNorm},

	Embedding:     {"embedding", inferEmbedding, costEmbedding, nil, referenceEmbedding},
	EmbeddingGrad: {"embedding_grad", inferEmbeddingGrad, costEmbeddingGrad, first, referenceEmbeddingGrad},

	Copy:       {"copy", inferCopy, nil, first, referenceCopy},
	Add:        {"add", inferBroadcast, nil, first, referenceAdd},
	Mul:        {"mul", inferBroadcast, nil, first, referenceMul},
	Scale:      {"scale", inferCopy, nil, first, referenceScale},
	Unary:      {"unary", inferUnary, costUnary, nil, referenceUnary},
	UnaryGrad:  {"unary_grad", inferUnaryGrad, costUnary, nil, referenceUnaryGrad},
	Gated:      {"gated", inferGated, costUnary, nil, referenceGated},
	GatedGrad:  {"gated_grad", inferGatedGrad, costUnary, nil, referenceGatedGrad},
	Dropout:    {"dropout", inferDropout, nil, nil, referenceDropout},
	Cast:       {"cast", inferCast, nil, nil, referenceCopy},
	Dequantize: {"dequantize", inferDequantize, nil, nil, referenceCopy},
	Split:      {"split", inferSplit, nil, nil, referenceSplit},
	Concat:     {"concat", inferConcat, nil, nil, referenceConcat},
	SumRows:    {"sum_rows", inferSumRows, costSumRows, first, referenceSumRows},

	RMSNorm:       {"rms_norm", inferRMSNorm, costNorm, nil, referenceRMSNorm},
	RMSNormGrad:   {"rms_norm_grad", inferRMSNormGrad, costNorm, rest, referenceRMSNormGrad},
	LayerNorm:     {"layer_norm", inferLayerNorm, costNorm, nil, referenceLayerNorm},
	LayerNormGrad: {"layer_norm_grad", inferLayerNormGrad, costNorm, rest, referenceLayerNormGrad},

	Rope:          {"rope", inferRope, nil, nil, referenceRope},
	Attention:     {"attention", inferAttention, costAttention, nil, referenceAttention},
	AttentionGrad: {"attention_grad", inferAttentionGrad, costAttentionGrad, nil, referenceAttentionGrad},

	LinearCrossEntropy:     {"linear_cross_entropy", inferLinearCrossEntropy, costLinearCrossEntropy, nil, referenceLinearCrossEntropy},
	LinearCrossEntropyGrad: {"linear_cross_entropy_grad", inferLinearCrossEntropyGrad, costLinearCrossEntropyGrad, third, referenceLinearCrossEntropyGrad},
	CrossEntropy:           {"cross_entropy", inferCrossEntropy, costCrossEntropy, nil, referenceCrossEntropy},
	CrossEntropyGrad:       {"cross_entropy_grad", inferCrossEntropyGrad, costCrossEntropy, nil, referenceCrossEntropyGrad},
	MeanSquare:             {"mean_square", inferMeanSquare, costCrossEntropy, nil, referenceMeanSquare},
	MeanSquareGrad:         {"mean_square_grad", inferMeanSquareGrad, nil, nil, referenceMeanSquareGrad},

	SumSquares: {"sum_squares", inferSumSquares, costSumRows, first, referenceSumSquares},
	ClipScale:  {"clip_scale", inferClipScale, nil, nil, referenceClipScale},
	Adam:       {"adam", inferAdam, costUpdate, nil, referenceAdam},
	SGD:        {"sgd", inferSGD, costUpdate, nil, referenceSGD},
	Lion:       {"lion", inferLion, costUpdate, nil, referenceLion},
	Adafactor:  {"adafactor", inferAdafactor, costAdafactor, nil, referenceAdafactor},
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
