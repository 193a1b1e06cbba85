package op

import (
	"fmt"

	"spillway/dtype"
)

// Cases of products, tables, elementwise ops and norms.

func (l *caseList) matMul() {
	for _, trans := range []Attr{{}, {TransB: true}, {TransA: true}, {TransA: true, TransB: true}} {
		a, b := [2]int{5, 7}, [2]int{7, 3}
		if trans.TransA {
			a = [2]int{7, 5}
		}
		if trans.TransB {
			b = [2]int{3, 7}
		}
		l.both(fmt.Sprintf("5x3x7 %v %v", trans.TransA, trans.TransB), MatMul, trans, l.x(a[0], a[1]), l.x(b[0], b[1]))
	}
	l.add("1x1x1", MatMul, Attr{}, l.x(1, 1), l.x(1, 1))
	l.add("1 row", MatMul, Attr{TransB: true}, l.x(1, 64), l.x(33, 64))
	l.add("1 column", MatMul, Attr{TransB: true}, l.x(19, 17), l.x(1, 17))
	l.add("outer product", MatMul, Attr{}, l.x(9, 1), l.x(1, 35))
	l.add("vector", MatMul, Attr{TransB: true}, l.x(6), l.x(4, 6))
	l.add("linear bias", MatMul, Attr{TransB: true, Bias: true}, l.x(2, 3, 5), l.x(4, 5), l.x(4))
	l.add("conv1d bias", MatMul, Attr{Bias: true}, l.x(2, 3, 5), l.x(5, 4), l.x(4))
	l.both("weight gradient", MatMul, Attr{TransA: true}, l.x(2, 3, 5), l.x(2, 3, 4))
	l.both("bias", MatMul, Attr{TransB: true, Bias: true}, l.x(5, 8), l.x(16, 8), l.x(16))
	l.add("plus", MatMul, Attr{TransB: true, Plus: true}, l.x(2, 3, 5), l.x(4, 5), l.x(2, 3, 4))
	l.add("plus transposed", MatMul, Attr{TransA: true, Plus: true}, l.x(7, 5), l.x(7, 3), l.x(5, 3))
	l.add("300x520x16 plus", MatMul, Attr{TransB: true, Plus: true}, l.x(300, 16), l.x(520, 16), l.x(300, 520))
	l.add("129x65x257", MatMul, Attr{TransB: true}, l.x(129, 257), l.x(65, 257)).Big = true
	l.add("129x65x257 in out", MatMul, Attr{}, l.x(129, 257), l.x(257, 65)).Big = true
	l.add("257x65x129 weight gradient", MatMul, Attr{TransA: true, Accumulate: true}, l.x(129, 257), l.x(129, 65)).Big = true
	l.add("64x96x1024", MatMul, Attr{TransB: true, Bias: true}, l.x(64, 1024), l.x(96, 1024), l.x(96)).Big = true
}

func (l *caseList) codedProduct() {
	for _, kind := range []dtype.Type{dtype.NF4, dtype.FP4, dtype.RowI8, dtype.RowF8} {
		l.add(fmt.Sprint("1 row ", kind), CodedProduct, Attr{}, l.x(1, 128), spreadAs(kind, 9, 128))
		l.add(fmt.Sprint("blocks across rows ", kind), CodedProduct, Attr{Bias: true}, l.x(2, 3, 43), spreadAs(kind, 35, 43), l.x(35))
		l.add(fmt.Sprint("129 rows ", kind), CodedProduct, Attr{Bias: true}, l.x(129, 257), spreadAs(kind, 65, 257), l.x(65)).Big = true
		l.add(fmt.Sprint("300 outputs ", kind), CodedProduct, Attr{}, l.x(3, 192), spreadAs(kind, 300, 192)).Big = true
	}
	for _, size := range []float64{1, 6.5, 60} { // without outliers, with some, with many
		outliers := Attr{Outliers: 6, Bias: true}
		l.add(fmt.Sprintf("to %v apart from 6", size), CodedProduct, outliers, l.sized(size, 5, 67), spreadAs(dtype.RowI8, 9, 67), l.x(9))
		l.add(fmt.Sprintf("69 rows to %v apart from 6", size), CodedProduct, Attr{Outliers: 6}, l.sized(size, 69, 257), spreadAs(dtype.RowI8, 130, 257)).Big = true
	}
	l.add("zeros apart from 6", CodedProduct, Attr{Outliers: 6}, l.constant(0, 2, 16), spreadAs(dtype.RowI8, 3, 16))
}

func (l *caseList) inverseNorm() {
	for _, rank := range []int{1, 5} {
		rows := Attr{TransB: true, Scale: 1.5}
		l.add(fmt.Sprintf("out in, rank %d", rank), InverseNorm, rows, l.x(7, 33), l.x(rank, 33), l.x(7, rank))
		l.add(fmt.Sprintf("in out, rank %d", rank), InverseNorm, Attr{Scale: 0.5}, l.x(33, 7), l.x(rank, 33), l.x(7, rank))
	}
	l.add("zeros", InverseNorm, Attr{TransB: true, Scale: 1}, l.constant(0, 2, 4), l.constant(0, 1, 4), l.x(2, 1))
	l.add("129x257", InverseNorm, Attr{TransB: true, Scale: 2}, l.x(129, 257), l.x(8, 257), l.x(129, 8)).Big = true
}

func (l *caseList) embedding() {
	l.add("2x3", Embedding, Attr{}, below(7, 2, 3), l.x(7, 5))
	l.add("1 id", Embedding, Attr{}, below(3, 1), l.x(3, 33))
	l.add("4x65", Embedding, Attr{}, below(50, 4, 65), l.x(50, 24)).Big = true
	l.both("2x3", EmbeddingGrad, Attr{Rows: 7}, below(7, 2, 3), l.x(2, 3, 5))
	l.both("one row many times", EmbeddingGrad, Attr{Rows: 2}, below(1, 1, 17), l.x(1, 17, 9))
	l.add("4x65", EmbeddingGrad, Attr{Rows: 50}, below(50, 4, 65), l.x(4, 65, 24)).Big = true
}

func (l *caseList) elementwise() {
	for _, dims := range [][]int{{1}, {3, 33}, {2, 5, 7}, {67, 129}} {
		name := fmt.Sprint(dims)
		l.both(name, Copy, Attr{}, l.x(dims...))
		l.both(name, Scale, Attr{Scale: -1.7}, l.x(dims...))
		l.both(name, Add, Attr{}, l.x(dims...), l.x(dims...))
		l.both(name, Mul, Attr{}, l.x(dims...), l.x(dims...))
	}
	for _, kind := range []Kind{Add, Mul} {
		l.both("vector over rows", kind, Attr{}, l.x(2, 3, 19), l.x(19))
		l.both("matrix over samples", kind, Attr{}, l.x(4, 3, 5), l.x(3, 5))
		l.both("1 element over all", kind, Attr{}, l.x(4, 1), l.x(1))
	}
	for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		l.add("to "+to.String(), Cast, Attr{To: to}, l.x(3, 37))
	}
	for _, kind := range []dtype.Type{dtype.NF4, dtype.FP4, dtype.RowI8, dtype.RowF8} {
		for _, dims := range [][]int{{1}, {64}, {3, 43}, {129, 130}} { // the last has two groups
			l.add(fmt.Sprint(kind, dims), Dequantize, Attr{To: l.d}, spreadAs(kind, dims...)).Big = len(dims) == 2 && dims[0] > 100
		}
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.9} {
		l.add(fmt.Sprintf("p=%v", p), Dropout, Attr{Prob: p, Stream: 4}, l.x(3, 5, 11))
	}
	l.add("1 sample", Dropout, Attr{Prob: 0.3, Stream: 1}, l.x(1, 130))
	l.add("vector", Dropout, Attr{Prob: 0.3, Stream: 1}, l.x(9))
}

func (l *caseList) functions() {
	for f := ReLU; f < funcs; f++ {
		a := Attr{Func: f}
		for _, size := range []float64{3, 30} {
			name := fmt.Sprintf("%v to %v", f, size)
			l.add(name, Unary, a, l.sized(size, 3, 37))
			l.add(name, UnaryGrad, a, l.sized(size, 3, 37), l.x(3, 37))
			l.add(name, Gated, a, l.sized(size, 3, 37), l.x(3, 37))
			l.add(name, GatedGrad, a, l.sized(size, 3, 37), l.x(3, 37), l.x(3, 37))
		}
		l.add(f.String()+" 1", Unary, a, l.x(1))
		l.add(f.String()+" 1", GatedGrad, a, l.x(1), l.x(1), l.x(1))
	}
}

func (l *caseList) rearranging() {
	l.add("unequal", Split, Attr{Sizes: []int64{5, 1, 9}}, l.x(2, 3, 15))
	l.add("one part", Split, Attr{Sizes: []int64{7}}, l.x(3, 7))
	l.add("q k v", Split, Attr{Sizes: []int64{64, 16, 16}}, l.x(1, 33, 96))
	l.add("unequal", Concat, Attr{}, l.x(2, 3, 5), l.x(2, 3, 1), l.x(2, 3, 9))
	l.add("one part", Concat, Attr{}, l.x(3, 7))
	l.both("keep 1", SumRows, Attr{Keep: 1}, l.x(2, 3, 19))
	l.both("keep 2", SumRows, Attr{Keep: 2}, l.x(4, 3, 5))
	l.both("keep all", SumRows, Attr{Keep: 2}, l.x(3, 5))
	l.both("1 row", SumRows, Attr{Keep: 1}, l.x(1, 35))
	l.add("tall", SumRows, Attr{Keep: 1}, l.x(517, 33)).Big = true
}

func (l *caseList) norms() {
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
		x, w := l.x(n.x...), l.x(n.w...)
		l.add(n.name, RMSNorm, eps, x, w)
		l.norm(n.name, RMSNormGrad, eps, x, w, x)
		if n.perHead {
			continue
		}
		biased := Attr{Eps: 1e-5, Bias: true}
		l.add(n.name, LayerNorm, eps, x, w)
		l.add(n.name+" bias", LayerNorm, biased, x, w, w)
		l.norm(n.name, LayerNormGrad, eps, x, w, x)
		l.norm(n.name+" bias", LayerNormGrad, biased, x, w, x)
	}
	l.add("equal elements", LayerNorm, eps, l.constant(0.5, 2, 16), l.x(16))
	l.add("equal elements", LayerNormGrad, eps, l.constant(0.5, 2, 16), l.x(16), l.x(2, 16))
	l.add("zeros", RMSNorm, eps, l.constant(0, 2, 16), l.x(16))
	l.add("small", RMSNorm, Attr{Eps: 1e-6}, l.sized(1e-3, 2, 16), l.x(16))
}

// norm adds the three forms of a norm's gradient.
func (l *caseList) norm(name string, kind Kind, a Attr, in ...operand) {
	l.both(name, kind, a, in...)
	a.InputOnly = true
	l.add(name+" input only", kind, a, in...)
}
