package optim

import (
	"fmt"
	"math"
	"regexp"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Muon updates a param whole, in place: a matrix by its momentum, made orthogonal, and every other param by
// AdamW. The gradient is multiplied by clip[0]; of a matrix of r rows and c columns
//
//	m += (g - m)·take
//	x = g + (m - g)·blend, divided by its norm
//	x = a·x + (b·x·xᵀ + d·(x·xᵀ)²)·x        five times, op.MuonCoefficients; by columns where r > c
//	w = shrink·w - step·x                    step is muon_rate·√max(1, r/c), or ·0.2·√max(r, c) where match is not 0
//
// Which of the two a call does is said by its states: one is a momentum, two are Adam's.
//
//	operands  w f32 or bf16, g, m f32 [r c]; or m and v f32; clip [2] f32
//	outputs   w, the states, and the low-precision copy of w when Attr.To is set
const Muon op.Kind = "muon"

// muonScalars names the numbers of an iteration: Adam's without couple, then the momentum's.
var muonScalars = []string{"beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink", "take", "blend", "muon_rate", "match"}

func init() {
	Register(Rule{Name: "muon", Help: "momentum of matrices made orthogonal; embeddings, heads and all that is no matrix by AdamW", LR: 1e-3, WeightDecay: 0.1,
		Options: []Option{
			{Name: "momentum", Default: 0.95, Below: 1, Help: "decay of the running mean of gradients"},
			{Name: "nesterov", Default: 1, Flag: true, Help: "step from the gradient and its mean together"},
			{Name: "match_rms_adamw", Flag: true, Help: "steps of matrices are as large as AdamW's, so that one lr suits both"},
			{Name: "adamw_beta1", Default: 0.9, Below: 1, Help: "beta1 of the params that AdamW updates"},
			{Name: "adamw_beta2", Default: 0.999, Below: 1, Help: "beta2 of them"},
			{Name: "adamw_eps", Default: 1e-8, Help: "eps of them"},
		},
		Check: func(c Config) error {
			if c.Storage != dtype.Invalid && c.Storage != dtype.F32 || c.Codecs != "" || c.StateExceptions != "" {
				return fmt.Errorf("its states are f32; leave types of states out")
			}
			return nil
		},
		Kind: Muon, States: func(Config) []string { return nil }, OtherStates: muonStates, No8Bit: true,
		Scalars: func(c Config, iteration int, lr, decay float32) op.Scalars {
			a := AdamStep{Rate: lr, Decay: decay, Beta1: float32(c.Get("adamw_beta1")), Beta2: float32(c.Get("adamw_beta2")), Eps: float32(c.Get("adamw_eps")), Decoupled: true}
			a.correct(iteration)
			adam, momentum, blend := a.Scalars(), float32(c.Get("momentum")), float32(1)
			if c.Get("nesterov") != 0 {
				blend = momentum
			}
			var s op.Scalars
			n := copy(s[:], adam[1:9])
			copy(s[n:], []float32{1 - momentum, blend, lr, float32(c.Get("match_rms_adamw"))})
			return s
		}})
	op.Register(op.Op{Kind: Muon, Infer: inferMuon, Cost: costMuon, InPlace: updateInPlace, Reference: referenceMuon, WholeParam: true, Workspace: workspaceMuon, Scalars: muonScalars, Cases: muonCases})
}

// headNames are matrices that turn the last activations into scores, under the names models have for them.
var headNames = regexp.MustCompile(`(^|\.)(lm_head|embed_out|head|score|classifier|qa_outputs|output_projection)\.weight$`)

// embeddingNames are tables of vectors.
var embeddingNames = regexp.MustCompile(paramWords[Embeddings])

// muonStates are a momentum of matrices, and Adam's of embeddings, heads and all that has other than two dimensions.
func muonStates(param string, s shape.Shape, l Layers) []op.State {
	t := op.Type{DType: dtype.F32, Shape: s}
	if len(s) == 2 && !headNames.MatchString(param) && l[param] != Embeddings && !embeddingNames.MatchString(param) {
		return []op.State{{Name: MomentumBuffer, Type: t}}
	}
	return []op.State{{Name: ExpAvg, Type: t}, {Name: ExpAvgSq, Type: t}}
}

func inferMuon(a op.Attr, in []op.Type) ([]op.Type, error) {
	states := len(in) - 3
	if states != 1 && states != 2 {
		return nil, fmt.Errorf("takes 4 or 5 operands, got %d", len(in))
	}
	if states == 1 && len(in[0].Shape) != 2 {
		return nil, fmt.Errorf("the weight is %v, want a matrix next to a momentum", in[0])
	}
	for i, t := range in[2 : len(in)-1] {
		if t.DType != dtype.F32 {
			return nil, fmt.Errorf("operand %d is %v, want f32", 2+i, t)
		}
	}
	return inferUpdate(a, in, make([][]dtype.Type, states))
}

// costMuon counts the three matmuls of each iteration.
func costMuon(c op.Call) op.Cost {
	if len(c.In) == 5 {
		return costUpdate(c)
	}
	long, short := float64(max(c.In[0].Shape[0], c.In[0].Shape[1])), float64(min(c.In[0].Shape[0], c.In[0].Shape[1]))
	return op.Cost{Flops: op.MuonIterations * (4*long*short*short + 2*short*short*short), Bytes: c.Traffic() + int64(op.MuonIterations*16*(long*short+short*short))}
}

// workspaceMuon is of two iterates and two squares of the shorter side, in bf16.
func workspaceMuon(c op.Call) int64 {
	if len(c.In) == 5 {
		return 0
	}
	short := min(c.In[0].Shape[0], c.In[0].Shape[1])
	return 4 * (c.In[0].Shape.Elements() + short*short)
}

func referenceMuon(c op.Call, in, out []op.Array, args op.Args) {
	if len(in) == 5 {
		var s op.Scalars
		copy(s[1:9], args.Scalars[:8])
		args.Scalars = s
		updates[Adam].reference(c, in, out, args)
		return
	}
	if skipped(c, in, out) {
		return
	}
	shrink, take, blend, rate, match := float64(args.Scalars[7]), float64(args.Scalars[8]), float64(args.Scalars[9]), float64(args.Scalars[10]), args.Scalars[11] != 0
	s, x, squares := c.In[0].Shape, make([]float64, len(in[0].F)), 0.0
	for i := range x {
		g := in[1].F[i] * in[3].F[0]
		m := in[2].F[i] + (g-in[2].F[i])*take
		out[1].F[i], x[i] = m, g+(m-g)*blend
		squares += x[i] * x[i]
	}
	norm := max(math.Sqrt(squares), op.MuonEps)
	for i := range x {
		x[i] /= norm
	}
	x = orthogonal(x, int(s[0]), int(s[1]))
	step := rate * op.MuonFactor(s[0], s[1], match)
	for i, w := range in[0].F {
		out[0].F[i] = shrink*w - step*x[i]
	}
	storeWeight(c, out, args)
}

// orthogonal iterates over a matrix whose norm is 1.
func orthogonal(x []float64, rows, cols int) []float64 {
	if rows > cols {
		return transposed(orthogonal(transposed(x, rows, cols), cols, rows), cols, rows)
	}
	a, b, d := op.MuonCoefficients[0], op.MuonCoefficients[1], op.MuonCoefficients[2]
	for range op.MuonIterations {
		gram := product(x, transposed(x, rows, cols), rows, cols, rows)
		by := product(gram, gram, rows, rows, rows)
		for i := range by {
			by[i] = b*gram[i] + d*by[i]
		}
		next := product(by, x, rows, rows, cols)
		for i := range next {
			next[i] += a * x[i]
		}
		x = next
	}
	return x
}

func transposed(x []float64, rows, cols int) []float64 {
	y := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			y[j*rows+i] = x[i*cols+j]
		}
	}
	return y
}

// product is x [m k] times y [k n].
func product(x, y []float64, m, k, n int) []float64 {
	z := make([]float64, m*n)
	for i := range m {
		for l := range k {
			for j := range n {
				z[i*n+j] += x[i*k+l] * y[l*n+j]
			}
		}
	}
	return z
}

func muonCases(l *op.CaseList) {
	clip := op.Numbers(0.75, 2)
	numbers := op.Scalars{0.9, 0.1, 0.999, 0.001, 18, 1e-8, 3e-2, 0.999, 0.05, 0.95, 1e-2, 0}
	matched := numbers
	matched[9], matched[11] = 1, 1
	add := func(name string, a op.Attr, s op.Scalars, in ...op.Operand) {
		c := l.Add(in[0].Type.Shape.String()+name, Muon, a, in...)
		c.Args.Scalars, c.Args.Key, c.Args.Row = s, 77, 1000
	}
	for _, dims := range [][]int{{1, 1}, {5, 8}, {9, 4}, {33, 70}, {131, 34}} {
		w, g, m := op.FilledF32(op.Spread, dims...), l.X(dims...), op.FilledF32(op.Spread, dims...)
		add("", op.Attr{}, numbers, w, g, m, clip)
		add(" as large as AdamW's, copy", op.Attr{To: dtype.BF16}, matched, w, g, m, clip)
		add(" skipped", op.Attr{To: dtype.BF16}, numbers, w, g, m, op.Numbers(0, 2))
		bf16 := w
		bf16.Type.DType = dtype.BF16
		add(" bf16", op.Attr{}, numbers, bf16, g, m, clip)
		add(" by AdamW", op.Attr{To: dtype.BF16}, numbers, w, g, m, op.FilledF32(squares, dims...), clip)
	}
	add(" by AdamW", op.Attr{}, numbers, op.FilledF32(op.Spread, 77), l.X(77), op.FilledF32(op.Spread, 77), op.FilledF32(squares, 77), clip)
}
