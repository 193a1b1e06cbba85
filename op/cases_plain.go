package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/quant"
)

// Cases of products, tables, elementwise ops and norms.

func (l *CaseList) matMul() {
	for _, trans := range []Attr{{}, {TransB: true}, {TransA: true}, {TransA: true, TransB: true}} {
		a, b := [2]int{5, 7}, [2]int{7, 3}
		if trans.TransA {
			a = [2]int{7, 5}
		}
		if trans.TransB {
			b = [2]int{3, 7}
		}
		l.Both(fmt.Sprintf("5x3x7 %v %v", trans.TransA, trans.TransB), MatMul, trans, l.X(a[0], a[1]), l.X(b[0], b[1]))
	}
	l.Add("1x1x1", MatMul, Attr{}, l.X(1, 1), l.X(1, 1))
	l.Add("1 row", MatMul, Attr{TransB: true}, l.X(1, 64), l.X(33, 64))
	l.Add("1 column", MatMul, Attr{TransB: true}, l.X(19, 17), l.X(1, 17))
	l.Add("outer product", MatMul, Attr{}, l.X(9, 1), l.X(1, 35))
	l.Add("vector", MatMul, Attr{TransB: true}, l.X(6), l.X(4, 6))
	l.Add("linear bias", MatMul, Attr{TransB: true, Bias: true}, l.X(2, 3, 5), l.X(4, 5), l.X(4))
	l.Add("conv1d bias", MatMul, Attr{Bias: true}, l.X(2, 3, 5), l.X(5, 4), l.X(4))
	l.Both("weight gradient", MatMul, Attr{TransA: true}, l.X(2, 3, 5), l.X(2, 3, 4))
	l.Both("bias", MatMul, Attr{TransB: true, Bias: true}, l.X(5, 8), l.X(16, 8), l.X(16))
	l.Add("plus", MatMul, Attr{TransB: true, Plus: true}, l.X(2, 3, 5), l.X(4, 5), l.X(2, 3, 4))
	l.Add("plus transposed", MatMul, Attr{TransA: true, Plus: true}, l.X(7, 5), l.X(7, 3), l.X(5, 3))
	l.Add("300x520x16 plus", MatMul, Attr{TransB: true, Plus: true}, l.X(300, 16), l.X(520, 16), l.X(300, 520))
	l.Add("129x65x257", MatMul, Attr{TransB: true}, l.X(129, 257), l.X(65, 257)).Large = true
	l.Add("129x65x257 in out", MatMul, Attr{}, l.X(129, 257), l.X(257, 65)).Large = true
	l.Add("257x65x129 weight gradient", MatMul, Attr{TransA: true, Accumulate: true}, l.X(129, 257), l.X(129, 65)).Large = true
	l.Add("64x96x1024", MatMul, Attr{TransB: true, Bias: true}, l.X(64, 1024), l.X(96, 1024), l.X(96)).Large = true
}

func (l *CaseList) quantizedMatmul() {
	for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.RowI8, quant.RowF8} {
		l.Add(fmt.Sprint("1 row ", kind), QuantizedMatmul, Attr{}, l.X(1, 128), SpreadAs(kind, 9, 128))
		l.Add(fmt.Sprint("blocks across rows ", kind), QuantizedMatmul, Attr{Bias: true}, l.X(2, 3, 43), SpreadAs(kind, 35, 43), l.X(35))
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

func (l *CaseList) inverseNorm() {
	for _, rank := range []int{1, 5} {
		rows := Attr{TransB: true, Scale: 1.5}
		l.Add(fmt.Sprintf("out in, rank %d", rank), InverseNorm, rows, l.X(7, 33), l.X(rank, 33), l.X(7, rank))
		l.Add(fmt.Sprintf("in out, rank %d", rank), InverseNorm, Attr{Scale: 0.5}, l.X(33, 7), l.X(rank, 33), l.X(7, rank))
	}
	l.Add("zeros", InverseNorm, Attr{TransB: true, Scale: 1}, l.Constant(0, 2, 4), l.Constant(0, 1, 4), l.X(2, 1))
	l.Add("129x257", InverseNorm, Attr{TransB: true, Scale: 2}, l.X(129, 257), l.X(8, 257), l.X(129, 8)).Large = true
}

func (l *CaseList) embedding() {
	l.Add("2x3", Embedding, Attr{}, Below(7, 2, 3), l.X(7, 5))
	l.Add("1 id", Embedding, Attr{}, Below(3, 1), l.X(3, 33))
	l.Add("4x65", Embedding, Attr{}, Below(50, 4, 65), l.X(50, 24)).Large = true
	l.Both("2x3", EmbeddingGrad, Attr{Rows: 7}, Below(7, 2, 3), l.X(2, 3, 5))
	l.Both("one row many times", EmbeddingGrad, Attr{Rows: 2}, Below(1, 1, 17), l.X(1, 17, 9))
	l.Add("4x65", EmbeddingGrad, Attr{Rows: 50}, Below(50, 4, 65), l.X(4, 65, 24)).Large = true
}

func (l *CaseList) elementwise() {
	for _, dims := range [][]int{{1}, {3, 33}, {2, 5, 7}, {67, 129}} {
		name := fmt.Sprint(dims)
		l.Both(name, Copy, Attr{}, l.X(dims...))
		l.Both(name, Scale, Attr{Scale: -1.7}, l.X(dims...))
		l.Both(name, Add, Attr{}, l.X(dims...), l.X(dims...))
		l.Both(name, Mul, Attr{}, l.X(dims...), l.X(dims...))
	}
	for _, kind := range []Kind{Add, Mul} {
		l.Both("vector over rows", kind, Attr{}, l.X(2, 3, 19), l.X(19))
		l.Both("matrix over samples", kind, Attr{}, l.X(4, 3, 5), l.X(3, 5))
		l.Both("1 element over all", kind, Attr{}, l.X(4, 1), l.X(1))
	}
	for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		l.Add("to "+to.String(), Cast, Attr{To: to}, l.X(3, 37))
	}
	for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.RowI8, quant.RowF8} {
		for _, dims := range [][]int{{1}, {64}, {3, 43}, {129, 130}} { // the last has two groups
			l.Add(fmt.Sprint(kind, dims), Dequantize, Attr{To: l.DType}, SpreadAs(kind, dims...)).Large = len(dims) == 2 && dims[0] > 100
		}
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.9} {
		l.Add(fmt.Sprintf("p=%v", p), Dropout, Attr{Prob: p, Stream: 4}, l.X(3, 5, 11))
	}
	l.Add("1 sample", Dropout, Attr{Prob: 0.3, Stream: 1}, l.X(1, 130))
	l.Add("vector", Dropout, Attr{Prob: 0.3, Stream: 1}, l.X(9))
}

func (l *CaseList) functions() {
	for f := ReLU; f < funcs; f++ {
		a := Attr{Func: f}
		for _, size := range []float64{3, 30} {
			name := fmt.Sprintf("%v to %v", f, size)
			l.Add(name, Unary, a, l.Sized(size, 3, 37))
			l.Add(name, UnaryGrad, a, l.Sized(size, 3, 37), l.X(3, 37))
			l.Add(name, Gated, a, l.Sized(size, 3, 37), l.X(3, 37))
			l.Add(name, GatedGrad, a, l.Sized(size, 3, 37), l.X(3, 37), l.X(3, 37))
		}
		l.Add(f.String()+" 1", Unary, a, l.X(1))
		l.Add(f.String()+" 1", GatedGrad, a, l.X(1), l.X(1), l.X(1))
	}
}

func (l *CaseList) rearranging() {
	l.Add("unequal", Split, Attr{Sizes: []int64{5, 1, 9}}, l.X(2, 3, 15))
	l.Add("one part", Split, Attr{Sizes: []int64{7}}, l.X(3, 7))
	l.Add("q k v", Split, Attr{Sizes: []int64{64, 16, 16}}, l.X(1, 33, 96))
	l.Add("unequal", Concat, Attr{}, l.X(2, 3, 5), l.X(2, 3, 1), l.X(2, 3, 9))
	l.Add("one part", Concat, Attr{}, l.X(3, 7))
	l.Both("keep 1", SumRows, Attr{InnerDims: 1}, l.X(2, 3, 19))
	l.Both("keep 2", SumRows, Attr{InnerDims: 2}, l.X(4, 3, 5))
	l.Both("keep all", SumRows, Attr{InnerDims: 2}, l.X(3, 5))
	l.Both("1 row", SumRows, Attr{InnerDims: 1}, l.X(1, 35))
	l.Add("tall", SumRows, Attr{InnerDims: 1}, l.X(517, 33)).Large = true
}

func (l *CaseList) norms() {
	eps := Attr{Eps: 1e-5}
	for _, n := range []struct {
		name    string
		x, w    []int
		perHead bool
	}{
		{"3x5x7", []int{3, 5, 7}, []int{7}, false},
		{"1 row", []int{1, 64}, []int{64}, false},
		{"9x257", []int{9, 257}, []int{257}, false},
		{"per head", []int{2, 3, 24}, []int{8}, true},
	} {
		x, w := l.X(n.x...), l.X(n.w...)
		l.Add(n.name, RMSNorm, eps, x, w)
		l.norm(n.name, RMSNormGrad, eps, x, w, x)
		if n.perHead {
			continue
		}
		biased := Attr{Eps: 1e-5, Bias: true}
		l.Add(n.name, LayerNorm, eps, x, w)
		l.Add(n.name+" bias", LayerNorm, biased, x, w, w)
		l.norm(n.name, LayerNormGrad, eps, x, w, x)
		l.norm(n.name+" bias", LayerNormGrad, biased, x, w, x)
	}
	l.Add("equal elements", LayerNorm, eps, l.Constant(0.5, 2, 16), l.X(16))
	l.Add("equal elements", LayerNormGrad, eps, l.Constant(0.5, 2, 16), l.X(16), l.X(2, 16))
	l.Add("zeros", RMSNorm, eps, l.Constant(0, 2, 16), l.X(16))
	l.Add("small", RMSNorm, Attr{Eps: 1e-6}, l.Sized(1e-3, 2, 16), l.X(16))
}

// norm adds the three forms of a norm's gradient.
func (l *CaseList) norm(name string, kind Kind, a Attr, in ...Operand) {
	l.Both(name, kind, a, in...)
	a.InputOnly = true
	l.Add(name+" input only", kind, a, in...)
}
