package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
)

func init() {
	Register(Op{Kind: QuantizedMatmul, Infer: inferQuantizedMatmul, Cost: costQuantizedMatmul, Reference: referenceQuantizedMatmul, Cases: (*CaseList).quantizedMatmul})
	Register(Op{Kind: Dequantize, Takes: 1, Infer: inferDequantize, Reference: referenceCopy, Cases: func(l *CaseList) {
		for _, codec := range quant.Weights() {
			kind := codec.Type
			for _, dims := range [][]int{{1}, {64}, {3, 43}, {129, 130}} { // the last has two groups
				l.Add(fmt.Sprint(kind, dims), Dequantize, Attr{To: l.DType}, SpreadAs(kind, dims...)).Large = len(dims) == 2 && dims[0] > 100
			}
		}
		l.decompressed()
	}})
}

// decompressed has weights in 12 bits, which are decoded to bf16: of one tile and of some, an odd number of them in a row, with upper
// bytes of other sizes here and there.
func (l *CaseList) decompressed() {
	if l.DType != dtype.BF16 {
		return
	}
	for _, dims := range [][]int{{32, 32}, {64, 96}, {32, 1056}, {288, 512}} {
		c := l.Add(fmt.Sprint(quant.CompressedBF16, dims), Dequantize, Attr{To: l.DType}, Operand{Type{quant.CompressedBF16, shape.Of(dims...)}, fillBy(func(i int, u float64) float64 {
			x := 2*u - 1
			if i%150 == 7 {
				x = math.Ldexp(x, -20-i/150%60)
			}
			return x
		})})
		c.Large = dims[0] > 100
	}
}

// QuantizedMatmul: y = x·Wᵀ (+ bias) of a weight in a block format, which is never decoded
// whole.
//
//	operands  x [.. K], W [N K] in a type of quant.Weights, then bias [N] with Attr.Bias
//	output    [.. N]
//
// With Attr.OutlierThreshold it is LLM.int8, and W is i8row. A column of x that, rounded to
// f16, has a magnitude of the threshold or more counts as outliers, and is multiplied as it
// is. Of the others, rounded to f16, each row becomes whole 127ths of its largest magnitude
// below the threshold, rounded to even in f32, and integers are multiplied.
// The gradient of x is in both cases that of the product with the decoded weight.
const QuantizedMatmul Kind = "quantized_matmul"

func inferQuantizedMatmul(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2, a.Bias); err != nil {
		return nil, err
	}
	if err := check(float(in, 0), rank(in, 0, 1), quantized(in, 1), matrix(in, 1)); err != nil {
		return nil, err
	}
	n, k := in[1].Shape[0], in[1].Shape[1]
	if in[0].Shape.Last() != k {
		return nil, fmt.Errorf("%v times %v: inner dimensions %d and %d differ", in[0], in[1], in[0].Shape.Last(), k)
	}
	if !(a.OutlierThreshold >= 0) || a.OutlierThreshold > 0 && in[1].DType != quant.RowI8 {
		return nil, fmt.Errorf("outliers from %v on with a weight %v, want a threshold above 0 and i8row", a.OutlierThreshold, in[1])
	}
	if a.Bias {
		if err := check(float(in, 2), vector(in, 2, n)); err != nil {
			return nil, err
		}
	}
	return []Type{{in[0].DType, in[0].Shape.WithLast(n)}}, nil
}

func costQuantizedMatmul(c Call) Cost {
	return Cost{Flops: 2 * float64(c.In[0].Shape.Elements()) * float64(c.In[1].Shape[0]), Matrix: true}
}

func referenceQuantizedMatmul(c Call, in, out []Array, args Args) {
	if c.Attr.OutlierThreshold > 0 {
		referenceOutliers(c, in, out)
		return
	}
	plain := c
	plain.Attr.TransB = true
	referenceMatMul(plain, in, out, args)
}

func referenceOutliers(c Call, in, out []Array) {
	n, k := c.In[1].Shape[0], c.In[1].Shape[1]
	halves := Array{Type: Type{dtype.F16, c.In[0].Shape}, F: slices.Clone(in[0].F)}
	halves.Round()
	x := rows(halves.F, k)
	apart := make([]bool, k)
	most := make([]float32, len(x))
	for i, row := range x {
		for l, f := range row {
			if math.Abs(f) >= c.Attr.OutlierThreshold {
				apart[l] = true
			} else {
				most[i] = max(most[i], float32(math.Abs(f)))
			}
		}
	}
	for i, row := range x {
		for j := range n {
			scale := float64(quant.RowScale(in[1].Packed, len(in[1].F), int(j)))
			var whole, plain float64
			for l, f := range row {
				code := float64(int8(in[1].Packed[j*k+int64(l)]))
				if apart[l] {
					plain += in[0].F[int64(i)*k+int64(l)] * code * scale / 127
				} else {
					whole += RoundInt8(float32(f), most[i]) * code
				}
			}
			y := whole*float64(most[i])*scale/(127*127) + plain
			if c.Attr.Bias {
				y += in[2].F[j]
			}
			out[0].F[int64(i)*n+j] = y
		}
	}
}

// RoundInt8 is how many 127ths of a largest magnitude a number is, rounded to even in f32
// as all devices do it.
func RoundInt8(x, most float32) float64 {
	if most == 0 {
		return 0
	}
	return math.RoundToEven(float64(x * (127 / most)))
}

func (l *CaseList) quantizedMatmul() {
	for _, codec := range quant.Weights() {
		kind := codec.Type
		l.Add(fmt.Sprint("1 row ", kind), QuantizedMatmul, Attr{}, l.X(1, 128), SpreadAs(kind, 9, 128))
		l.Add(fmt.Sprint("blocks across rows ", kind), QuantizedMatmul, Attr{Bias: true}, l.X(2, 3, 43), SpreadAs(kind, 35, 43), l.X(35))
		l.Add(fmt.Sprint("13 rows of 768 ", kind), QuantizedMatmul, Attr{Bias: true}, l.X(13, 768), SpreadAs(kind, 50, 768), l.X(50)).Large = true
		l.Add(fmt.Sprint("129 rows ", kind), QuantizedMatmul, Attr{Bias: true}, l.X(129, 257), SpreadAs(kind, 65, 257), l.X(65)).Large = true
		l.Add(fmt.Sprint("300 outputs ", kind), QuantizedMatmul, Attr{}, l.X(3, 192), SpreadAs(kind, 300, 192)).Large = true
	}
	for _, size := range []float64{1, 6.5, 60} { // without outliers, with some, with many
		outliers := Attr{OutlierThreshold: 6, Bias: true}
		l.Add(fmt.Sprintf("to %v apart from 6", size), QuantizedMatmul, outliers, l.Sized(size, 5, 67), SpreadAs(quant.RowI8, 9, 67), l.X(9))
		l.Add(fmt.Sprintf("69 rows to %v apart from 6", size), QuantizedMatmul, Attr{OutlierThreshold: 6}, l.Sized(size, 69, 257), SpreadAs(quant.RowI8, 130, 257)).Large = true
	}
	l.Add("zeros apart from 6", QuantizedMatmul, Attr{OutlierThreshold: 6}, l.Constant(0, 2, 16), SpreadAs(quant.RowI8, 3, 16))
}

// Dequantize: a coded weight as plain numbers; package quant says what its bytes mean.
// The numbers are computed in f32 and rounded once more where Attr.To is narrower.
const Dequantize Kind = "dequantize"

func inferDequantize(a Attr, in []Type) ([]Type, error) {
	if err := check(quantized(in, 0), rank(in, 0, 1)); err != nil {
		return nil, err
	}
	if !a.To.Float() || a.To.Block() {
		return nil, fmt.Errorf("to %v, want a plain real type", a.To)
	}
	return []Type{{a.To, in[0].Shape}}, nil
}
