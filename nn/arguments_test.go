package nn_test

import (
	"math"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/spec"
)

// oneBlock is a model of one block, whose layer has its weights where Bind finds them.
type oneBlock struct {
	Layer any `hf:"layer,optional"`
	code  func(b *graph.Builder) graph.Value
}

func (m *oneBlock) Blocks() []nn.Block {
	return []nn.Block{{Name: "block", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{m.code(b)}
	}}}
}

// tracing is the error that tracing model code gives; a panic would end the test.
func tracing(layer any, task graph.Task, code func(b *graph.Builder) graph.Value) error {
	_, err := spec.Trace("model", "test", &oneBlock{layer, code}, graph.Config{MicroBatchSize: 2, Seq: 4, DType: dtype.F32, Task: task})
	return err
}

// floats and ids are tensors of the batch.
func floats(b *graph.Builder, dims ...int64) graph.Value { return b.Part("x", dtype.F32, dims...) }
func ids(b *graph.Builder, dims ...int64) graph.Value    { return b.Part("ids", dtype.I32, dims...) }

// What PyTorch refuses, and what is not there, is an error with the op's name, both numbers and what it takes: never a panic, never another result.
func TestArgumentsOutOfRangeAreRefused(t *testing.T) {
	const biggest = math.MaxInt64
	nan := math.NaN()
	type B = graph.Builder
	type V = graph.Value
	for _, c := range []struct {
		name, want string
		code       func(b *B) V
	}{
		{"slice step 0", "slice: from 0 to before 3 by a step of 0", func(b *B) V { return b.Slice(floats(b, 2, 3), 1, 0, 3, 0) }},
		{"slice step -1", "by a step of -1", func(b *B) V { return b.Slice(floats(b, 2, 3), 1, 3, 0, -1) }},
		{"slice of nothing", "slice: from 2 to before 2", func(b *B) V { return b.Slice(floats(b, 2, 3), 1, 2, 2, 1) }},
		{"slice outside", "which has 3 places", func(b *B) V { return b.Slice(floats(b, 2, 3), 1, 5, 9, 1) }},
		{"slice axis", "has no axis 2; its axes are 0 to 1", func(b *B) V { return b.Slice(floats(b, 2, 3), 2, 0, 1, 1) }},
		{"reshape does not divide", "reshape: the 6 elements of f32[2 3] as [4 -1]", func(b *B) V { return b.Reshape(floats(b, 2, 3), 4, -1) }},
		{"reshape two -1", "as [-1 -1]", func(b *B) V { return b.Reshape(floats(b, 2, 3), -1, -1) }},
		{"reshape -2", "negative dimension -2", func(b *B) V { return b.Reshape(floats(b, 2, 3), -2, -3) }},
		{"reshape 0", "as [0 -1]", func(b *B) V { return b.Reshape(floats(b, 2, 3), 0, -1) }},
		{"reshape too few", "f32[2 3] has 6 elements, shape [5] has 5", func(b *B) V { return b.Reshape(floats(b, 2, 3), 5) }},
		{"reshape overflows", "as [9223372036854775807 2 -1]", func(b *B) V { return b.Reshape(floats(b, 2, 3), biggest, 2, -1) }},
		{"flatten backward", "flatten: axes 1 to 0", func(b *B) V { return b.Flatten(floats(b, 2, 3), 1, 0) }},
		{"permute twice", "permute: [0 0] are not the 2 dimensions", func(b *B) V { return b.Permute(floats(b, 2, 3), 0, 0) }},
		{"permute few", "permute: [0] are not the 2 dimensions", func(b *B) V { return b.Permute(floats(b, 2, 3), 0) }},
		{"permute far", "permute: [-1 0] are not", func(b *B) V { return b.Permute(floats(b, 2, 3), -3, 0) }},
		{"transpose", "has no axis -3", func(b *B) V { return b.Transpose(floats(b, 2, 3), 0, -3) }},
		{"expand", "expand: shapes [4 3] and [2 3] do not fit", func(b *B) V { return b.Expand(floats(b, 2, 3), 4, 3) }},
		{"expand to 0", "expand:", func(b *B) V { return b.Expand(floats(b, 1, 3), 0, 3) }},
		{"expand -1 of a new axis", "expand:", func(b *B) V { return b.Expand(floats(b, 2, 3), -1, 2, 3) }},
		{"expand to fewer", "expand:", func(b *B) V { return b.Expand(floats(b, 2, 3), 3) }},
		{"pad away all", "pad: -2 before and -1 behind axis 1", func(b *B) V { return b.Pad(floats(b, 2, 3), 1, -2, -1) }},
		{"pad by far too much", "pad:", func(b *B) V { return b.Pad(floats(b, 2, 3), 1, biggest, biggest) }},
		{"pad constant", "pad:", func(b *B) V { return b.PadConstant(floats(b, 2, 3), 1, -3, 0, 1) }},
		{"reflect by too much", "of 3 before and 0 behind 3 places", func(b *B) V { return b.Padded(graph.PadReflect, floats(b, 2, 3), 1, 3, 0) }},
		{"circular by too much", "of 0 before and 4 behind 3 places", func(b *B) V { return b.Padded(graph.PadCircular, floats(b, 2, 3), 1, 0, 4) }},
		{"replicate less than none", "of -1 before", func(b *B) V { return b.Padded(graph.PadReplicate, floats(b, 2, 3), 1, -1, 0) }},
		{"padding mode", `"mirror"`, func(b *B) V { return b.Padded("mirror", floats(b, 2, 3), 1, 1, 0) }},
		{"split sizes", "split: ", func(b *B) V { return b.SplitAxis(floats(b, 2, 3), 1, 1, 1)[1] }},
		{"split 0", "part 1 has size 0", func(b *B) V { return b.SplitAxis(floats(b, 2, 3), 1, 3, 0)[1] }},
		{"split overflows", "part 0 has size 9223372036854775807", func(b *B) V { return b.Split(floats(b, 2, 3), biggest, biggest, 5)[2] }},
		{"split many", "split: ", func(b *B) V { return b.Split(floats(b, 2, 3), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)[9] }},
		{"split none", "split: ", func(b *B) V { b.Split(floats(b, 2, 3)); return floats(b, 2, 3) }},
		{"chunk 0", "chunk: 0 parts of axis 1", func(b *B) V { return b.Chunk(floats(b, 2, 3), 1, 0)[0] }},
		{"chunk -1", "chunk: -1 parts", func(b *B) V { return b.Chunk(floats(b, 2, 3), 1, -1)[0] }},
		{"concat nothing", "concat: joins 0 tensors", func(b *B) V { return b.ConcatAxis(0) }},
		{"concat nothing at last", "concat: joins 0 tensors", func(b *B) V { return b.Concat() }},
		{"concat shapes", "concat: ", func(b *B) V { return b.ConcatAxis(0, floats(b, 2, 3), b.Part("y", dtype.F32, 2, 4)) }},
		{"stack axis", "stack: f32[2 3] has no place for an axis -4; a new one is at 0 to 2, or from the last -1 to -3", func(b *B) V { return b.Stack(-4, floats(b, 2, 3), floats(b, 2, 3)) }},
		{"stack shapes", "concat: ", func(b *B) V { return b.Stack(0, floats(b, 2, 3), b.Part("y", dtype.F32, 2, 4)) }},
		{"stack nothing", "joins 0 tensors", func(b *B) V { return b.Stack(0) }},
		{"roll axis", "has no axis 2", func(b *B) V { return b.Roll(floats(b, 2, 3), 2, 1) }},
		{"flip axis", "has no axis -3", func(b *B) V { return b.Flip(floats(b, 2, 3), -3) }},
		{"gather larger ids", "gather: ids i32[3 1] do not fit f32[2 3]", func(b *B) V { return b.Gather(floats(b, 2, 3), 1, ids(b, 3, 1)) }},
		{"gather ranks", "gather: ids i32[2] do not fit f32[2 3]", func(b *B) V { return b.Gather(floats(b, 2, 3), 1, ids(b, 2)) }},
		{"gather by floats", "gather: operand 1 is f32[2 3]", func(b *B) V { return b.Gather(floats(b, 2, 3), 1, floats(b, 2, 3)) }},
		{"gather constant", "constant i has 3 at place 1, want 0 to 2", func(b *B) V { return b.Gather(floats(b, 2, 3), 1, b.Integers("i", []int32{0, 3}, 2, 1)) }},
		{"scatter shapes", "gather_grad: ids i32[2 2] do not fit f32[2 3]", func(b *B) V { return b.ScatterAdd(floats(b, 2, 3), 1, ids(b, 2, 2), 4) }},
		{"scatter to none", "gather_grad: ", func(b *B) V { return b.ScatterAdd(floats(b, 2, 3), 1, ids(b, 2, 3), 0) }},
		{"index_add", "index_add: ids are i32[2], want one for each of the 3 places", func(b *B) V { return b.IndexAdd(floats(b, 2, 3), 1, ids(b, 2), 4) }},
		{"index_select", "index_select: ids are i32[2 2] with 2 dimensions, want 1", func(b *B) V { return b.IndexSelect(floats(b, 2, 3), 1, ids(b, 2, 2)) }},
		{"index_select constant", "has -1 at place 0, want 0 to 2", func(b *B) V { return b.IndexSelect(floats(b, 2, 3), 1, b.Integers("i", []int32{-1})) }},
		{"one_hot of 0 classes", "one_hot: 0 classes of i32[2 3]", func(b *B) V { return b.OneHot(ids(b, 2, 3), 0) }},
		{"one_hot of floats", "one_hot: 3 classes of f32[2 3]", func(b *B) V { return b.OneHot(floats(b, 2, 3), 3) }},
		{"one_hot constant", "constant i has 5 at place 1, want 0 to 4", func(b *B) V { return b.OneHot(b.Integers("i", []int32{4, 5}), 5) }},
		{"topk 0", "topk: the 0 largest along axis 1 of f32[2 3], which has 3; take 1 to 3", func(b *B) V { v, _ := b.TopK(floats(b, 2, 3), 1, 0); return v }},
		{"topk 4", "topk: the 4 largest", func(b *B) V { _, i := b.TopK(floats(b, 2, 3), 1, 4); return i }},
		{"reduce twice", "reduce: axis 1 of f32[2 3] appears twice in [1 -1]", func(b *B) V { return b.Sum(floats(b, 2, 3), 1, -1) }},
		{"reduce axis", "has no axis 2", func(b *B) V { return b.Mean(floats(b, 2, 3), 2) }},
		{"reduction unknown", "reduce: has no reduction", func(b *B) V { return b.Reduce(op.Reduction(99), floats(b, 2, 3), false, 0) }},
		{"reduce ids", "cast ids to f32 first", func(b *B) V { return b.Sum(ids(b, 2, 3)) }},
		{"reduce no value", "is no value", func(b *B) V { return b.Sum(0) }},
		{"largest of no value", "is no value", func(b *B) V { return b.Max(0) }},
		{"slice of no value", "is no value", func(b *B) V { return b.Slice(0, 0, 0, 1, 1) }},
		{"softmax axis", "has no axis 3", func(b *B) V { return b.Softmax(floats(b, 2, 3), 3) }},
		{"cumsum axis", "has no axis -3", func(b *B) V { return b.CumSum(floats(b, 2, 3), -3) }},
		{"cumprod axis", "has no axis 2", func(b *B) V { return b.CumProd(floats(b, 2, 3), 2) }},
		{"argmax axis", "has no axis 2", func(b *B) V { return b.ArgMax(floats(b, 2, 3), 2) }},
		{"sort axis", "has no axis 2", func(b *B) V { v, _ := b.Sort(floats(b, 2, 3), 2, false); return v }},
		{"sort ids", "argsort: operand 0 is i32[2 3], want real numbers", func(b *B) V { return b.ArgSort(ids(b, 2, 3), 1, true) }},
		{"scatter_reduce axis", "has no axis 3", func(b *B) V {
			return b.ScatterReduce(op.ReduceMax, floats(b, 2, 3), 3, ids(b, 2, 3), floats(b, 2, 3), true)
		}},
		{"scatter_reduce shapes", "scatter_reduce: operand 2 is f32[2 4], want f32[2 5]", func(b *B) V {
			return b.ScatterReduce(op.ReduceMin, floats(b, 2, 3), 1, ids(b, 2, 5), b.Part("z", dtype.F32, 2, 4), true)
		}},
		{"scatter_reduce of a product", "scatter_reduce: by prod; it takes sum, mean, max or min", func(b *B) V {
			return b.ScatterReduce(op.ReduceProd, floats(b, 2, 3), 1, ids(b, 2, 3), floats(b, 2, 3), true)
		}},
		{"scatter_reduce no value", "is no value", func(b *B) V {
			return b.ScatterReduce(op.ReduceMax, floats(b, 2, 3), 1, ids(b, 2, 3), 0, true)
		}},
		{"var of one", "var: 1 numbers with a correction of 1", func(b *B) V { return b.Var(floats(b, 2, 1), 1, 1) }},
		{"var correction", "var: 3 numbers with a correction of NaN", func(b *B) V { return b.Std(floats(b, 2, 3), nan, 1) }},
		{"cosine shapes", "cosine_similarity: shapes [2 3] and [2 4]", func(b *B) V {
			return b.CosineSimilarity(floats(b, 2, 3), b.Part("y", dtype.F32, 2, 4), 1, 1e-8)
		}},
		{"clamp backward", "clamp", func(b *B) V { return b.Clamp(floats(b, 2, 3), nan, 1) }},
		{"add shapes", "shapes [2 3] and [2 4] do not fit", func(b *B) V { return b.Add(floats(b, 2, 3), b.Part("y", dtype.F32, 2, 4)) }},
		{"compare by what is none", "compare: ", func(b *B) V { return b.Compare(op.Plus, floats(b, 2, 3), floats(b, 2, 3)) }},
		{"binary by a comparison", "binary: ", func(b *B) V { return b.Binary(op.Less, floats(b, 2, 3), floats(b, 2, 3)) }},
		{"batch norm of one momentum", "batch norm: momenta of 0 and 0.1", func(b *B) V {
			n := nn.NewBatchNorm(3)
			n.RunningMean.Momentum = 0
			return n.Forward(b, floats(b, 2, 3))
		}},
		{"batch norm of a momentum of -1", "batch norm: a momentum of -1; it must not be below 0", func(b *B) V {
			n := nn.NewBatchNorm(3)
			n.RunningMean.Momentum, n.RunningVariance.Momentum = -1, -1
			return n.Forward(b, floats(b, 2, 3))
		}},
		{"batch norm of a momentum of NaN", "batch norm: a momentum of NaN", func(b *B) V {
			n := nn.NewBatchNorm(3)
			n.RunningMean.Momentum, n.RunningVariance.Momentum = nan, nan
			return n.Forward(b, floats(b, 2, 3))
		}},
		{"batch norm of an eps of 0", "batch norm: an eps of 0 while training; it must be above 0", func(b *B) V {
			n := nn.NewBatchNorm(3)
			n.Eps = 0
			return n.Forward(b, floats(b, 2, 3))
		}},
		{"rope of a theta of 0", "rope: frequency 1 of 2 is +Inf; theta must be above 0", func(b *B) V { return nn.NewRope(0, 4).Forward(b, floats(b, 2, 4, 8), 2) }},
		{"rope of a theta of -1", "rope: frequency 1 of 2 is NaN", func(b *B) V { return nn.NewRope(-1, 4).Forward(b, floats(b, 2, 4, 8), 2) }},
		{"number among ids", "number: 0 for a tensor of i32[2 3]; cast ids to f32 first", func(b *B) V { return b.Compare(op.NotEqual, ids(b, 2, 3), b.Number(ids(b, 2, 3), 0)) }},
		{"unary without its numbers", "unary: by clamp, which needs numbers; give them to Clamp, Power or Map", func(b *B) V { return b.Unary(op.Clamp, floats(b, 2, 3)) }},
		{"power without its number", "unary: by power, which needs numbers", func(b *B) V { return b.Unary(op.Power, floats(b, 2, 3)) }},
		{"scale by infinity", "scale: a number of +Inf; it takes finite ones", func(b *B) V { return b.Scale(floats(b, 2, 3), math.Inf(1)) }},
		{"power of NaN", "unary: a number of NaN", func(b *B) V { return b.Power(floats(b, 2, 3), nan) }},
		{"unary unknown", "unary: ", func(b *B) V { return b.Unary(op.Func(200), floats(b, 2, 3)) }},
		{"matmul inner", "inner dimensions", func(b *B) V { return b.BatchMatMul(floats(b, 2, 3), floats(b, 2, 3), false, false) }},
		{"matmul batches", "batch_matmul: ", func(b *B) V { return b.BatchMatMul(floats(b, 2, 3, 4), b.Part("y", dtype.F32, 3, 4, 5), false, false) }},
		{"matmul of a weight of 3", "matmul: the weight is f32[2 3 4] with 3 dimensions, want 2", func(b *B) V { return b.Linear(b.Part("y", dtype.F32, 2, 4), floats(b, 2, 3, 4), 0) }},
		{"linear bias", "matmul: ", func(b *B) V {
			return b.Linear(floats(b, 2, 3), b.Part("w", dtype.F32, 5, 3), b.Part("b", dtype.F32, 4))
		}},
		{"linear no weight", "operand 1 is no value", func(b *B) V { return b.Linear(floats(b, 2, 3), 0, 0) }},
		{"embedding by floats", "embedding: operand 0 is f32[2 3]", func(b *B) V { return b.Embedding(floats(b, 2, 3), floats(b, 2, 3)) }},
		{"embedding constant", "constant i has 2 at place 0, want 0 to 1", func(b *B) V { return b.Embedding(b.Integers("i", []int32{2}), floats(b, 2, 3)) }},
		{"dropout -0.1", "dropout: a probability of -0.1; it is from 0 to 1", func(b *B) V { return b.Dropout(floats(b, 2, 3), -0.1) }},
		{"dropout 1.5", "a probability of 1.5", func(b *B) V { return b.Dropout(floats(b, 2, 3), 1.5) }},
		{"dropout NaN", "a probability of NaN", func(b *B) V { return b.Dropout(floats(b, 2, 3), nan) }},
		{"layer norm weight", "layer_norm: ", func(b *B) V { return b.LayerNorm(floats(b, 2, 3), b.Part("w", dtype.F32, 4), 0, 1e-5) }},
		{"rms norm weight", "does not divide the last dimension", func(b *B) V { return b.RMSNorm(floats(b, 2, 3), b.Part("w", dtype.F32, 2), 1e-5) }},
		{"group norm of 0 groups", "group_norm: 0 groups do not divide the 6 channels", func(b *B) V { return b.GroupNorm(floats(b, 2, 5, 6), 0, 0, 0, 1e-5) }},
		{"group norm of 4 groups", "group_norm: 4 groups do not divide the 6 channels", func(b *B) V { return b.GroupNorm(floats(b, 2, 5, 6), 4, 0, 0, 1e-5) }},
		{"group norm of -2 groups", "-2 groups", func(b *B) V { return b.GroupNorm(floats(b, 2, 5, 6), -2, 0, 0, 1e-5) }},
		{"group norm weight", "group_norm: ", func(b *B) V { return b.GroupNorm(floats(b, 2, 5, 6), 2, b.Part("w", dtype.F32, 5), 0, 1e-5) }},
		{"batch norm with a mean alone", "group_norm: operand", func(b *B) V { return b.BatchNorm(floats(b, 2, 5, 6), 0, 0, b.Part("w", dtype.F32, 6), 0, 1e-5) }},
		{"interpolate sizes", "has 2 spatial dimensions, 1 sizes are given", func(b *B) V { return b.Interpolate(op.Linear, false, floats(b, 2, 4, 4, 3), []int64{5}, nil) }},
		{"interpolate to 0", "resample: ", func(b *B) V { return b.Interpolate(op.Linear, false, floats(b, 2, 4, 3), []int64{0}, nil) }},
		{"interpolate scales", "2 scales of 1 spatial dimensions", func(b *B) V { return b.Interpolate(op.Linear, false, floats(b, 2, 4, 3), []int64{5}, []float64{1, 1}) }},
		{"interpolate scale", "a scale of -1", func(b *B) V { return b.Interpolate(op.Linear, false, floats(b, 2, 4, 3), []int64{5}, []float64{-1}) }},
		{"interpolate corners", "corners are aligned", func(b *B) V { return b.Interpolate(op.Nearest, true, floats(b, 2, 4, 3), []int64{5}, nil) }},
		{"rope heads", "rope: ", func(b *B) V { return b.Rope(floats(b, 2, 4, 8), ids(b, 2, 4), b.Floats("f", []float32{1, 2}), 3, 0) }},
		{"rope frequencies", "rope: frequencies f32[2] do not fit heads of 2 elements", func(b *B) V { return b.Rope(floats(b, 2, 4, 8), ids(b, 2, 4), b.Floats("f", []float32{1, 2}), 4, 0) }},

		{"input of 0", "input batch x: shape [2 0] has 0 elements", func(b *B) V { return floats(b, 2, 0) }},
		{"input of -1", "negative dimension -1", func(b *B) V { return floats(b, 2, -1) }},
		{"constant of none", "input const c: shape [0] has 0 elements", func(b *B) V { return b.Floats("c", nil) }},
		{"constant shape", "constant c has 3 numbers, shape [2 2] has 4", func(b *B) V { return b.Floats("c", []float32{1, 2, 3}, 2, 2) }},

		{"softshrink", "softshrink: ", func(b *B) V { return nn.Softshrink(-1).Forward(b, floats(b, 2, 3)) }},
		{"celu", "celu: ", func(b *B) V { return nn.CELU(0).Forward(b, floats(b, 2, 3)) }},
		{"glu", "glu: ", func(b *B) V { return nn.GLU(-1).Forward(b, floats(b, 2, 3)) }},
		{"huber", "huber: ", func(b *B) V { return nn.Huber(b, floats(b, 2, 3), floats(b, 2, 3), 0) }},
		{"smooth_l1", "smooth_l1: ", func(b *B) V { return nn.SmoothL1(b, floats(b, 2, 3), floats(b, 2, 3), -1) }},
		{"distillation", "distillation: ", func(b *B) V { return nn.Distillation(b, floats(b, 2, 3), floats(b, 2, 3), 0) }},
		{"triplet margin 0", "triplet margin: a margin of 0; it must be above 0", func(b *B) V {
			return nn.TripletMargin(b, floats(b, 2, 3), floats(b, 2, 3), floats(b, 2, 3), 0)
		}},
		{"triplet margin NaN", "triplet margin: a margin of NaN", func(b *B) V {
			return nn.TripletMargin(b, floats(b, 2, 3), floats(b, 2, 3), floats(b, 2, 3), nan)
		}},
		{"triplet shapes", "shapes", func(b *B) V {
			return nn.TripletMargin(b, floats(b, 2, 3), b.Part("y", dtype.F32, 2, 4), floats(b, 2, 3), 1)
		}},
		{"cross-entropy smoothing", "a smoothing of 1.5", func(b *B) V { return nn.CrossEntropyOf(b, floats(b, 2, 3), nn.CrossEntropyOptions{Smoothing: 1.5}) }},
		{"cross-entropy weights", "of 3 classes with 2 weights", func(b *B) V {
			return nn.CrossEntropyOf(b, floats(b, 2, 3), nn.CrossEntropyOptions{Weights: []float32{1, 2}})
		}},
		{"cross-entropy targets", "cross_entropy: of logits f32[2 3] and targets i32[3]", func(b *B) V {
			return nn.CrossEntropyEach(b, floats(b, 2, 3), ids(b, 3), nn.CrossEntropyOptions{})
		}},
		{"cross-entropy smoothing NaN", "a smoothing of NaN", func(b *B) V { return nn.CrossEntropyOf(b, floats(b, 2, 3), nn.CrossEntropyOptions{Smoothing: nan}) }},
		{"dpo smoothing", "dpo: ", func(b *B) V { x := floats(b, 2); return nn.DPO(b, x, x, x, x, 0.1, 1.7) }},
		{"ctc blank", "ctc: ", func(b *B) V {
			return nn.CTC(b, floats(b, 2, 5, 3), ids(b, 2, 2), b.Part("t", dtype.I32, 2), b.Part("l", dtype.I32, 2), 3)
		}},
		{"ctc lengths", "ctc: ", func(b *B) V {
			return nn.CTC(b, floats(b, 2, 5, 3), ids(b, 2, 2), b.Part("t", dtype.I32, 3), b.Part("l", dtype.I32, 2), 0)
		}},
		{"ctc labels", "ctc: ", func(b *B) V {
			return nn.CTC(b, floats(b, 2, 5, 3), ids(b, 3, 2), b.Part("t", dtype.I32, 2), b.Part("l", dtype.I32, 2), 0)
		}},
		{"ctc times", "constant t has 6 at place 1, want 0 to 5", func(b *B) V {
			return nn.CTC(b, floats(b, 2, 5, 3), ids(b, 2, 2), b.Integers("t", []int32{5, 6}), b.Part("l", dtype.I32, 2), 0)
		}},
		{"packed lengths", "constant t has 6 at place 1, want 0 to 5", func(b *B) V {
			y, _, _ := nn.NewLSTM(3, 4, 1, false).ForwardPacked(b, floats(b, 2, 5, 3), 0, 0, b.Integers("t", []int32{5, 6}))
			return y
		}},
		{"packed lengths of others", "gru: lengths are i32[3], want i32[2]", func(b *B) V {
			y, _, _ := nn.NewGRU(3, 4, 1, false).ForwardPacked(b, floats(b, 2, 5, 3), 0, 0, ids(b, 3))
			return y
		}},
		{"more states than layers", "gru: states are f32[3 2 4], want [2 2 4]", func(b *B) V {
			y, _, _ := nn.NewGRU(3, 4, 1, true).ForwardFrom(b, floats(b, 2, 5, 3), b.Part("h", dtype.F32, 3, 2, 4), 0)
			return y
		}},
		{"memory of a gru", "gru: states c f32[1 2 4], which only lstm has", func(b *B) V {
			h := b.Part("h", dtype.F32, 1, 2, 4)
			y, _, _ := nn.NewGRU(3, 4, 1, false).ForwardFrom(b, floats(b, 2, 5, 3), h, h)
			return y
		}},
		{"mean of other samples", "first dimension is not the 2 samples", func(b *B) V { return nn.Mean(b, floats(b, 3, 3)) }},
		{"pos_weight", "2 weights of positive targets, and there are 3", func(b *B) V { return nn.BCEWithLogits(b, floats(b, 2, 3), floats(b, 2, 3), []float32{1, 2}) }},
		{"flow loss of no value", "flow loss: ", func(b *B) V { return nn.FlowLoss(b, 0) }},
		{"channels last of a vector", "permute: ", func(b *B) V { return nn.ChannelsLast{}.Forward(b, 0) }},
		{"flatten of a vector", "has no axis 1", func(b *B) V { return nn.Flatten{}.Forward(b, floats(b, 2)) }},
		{"max pool kernel", "pool: ", func(b *B) V { return nn.NewMaxPool2d(0, 1, 0).Forward(b, floats(b, 2, 5, 5, 3)) }},
		{"max pool padding", "pool: ", func(b *B) V { return nn.NewMaxPool2d(2, 1, 2).Forward(b, floats(b, 2, 5, 5, 3)) }},
		{"max pool stride", "pool: ", func(b *B) V { return nn.NewMaxPool2d(2, -1, 0).Forward(b, floats(b, 2, 5, 5, 3)) }},
		{"max pool of fewer dimensions", "pool: ", func(b *B) V { return nn.NewMaxPool2d(2, 1, 0).Forward(b, floats(b, 2, 5, 3)) }},
		{"max pool window", "pool: ", func(b *B) V { return nn.NewMaxPool2d(7, 1, 0).Forward(b, floats(b, 2, 5, 5, 3)) }},
		{"avg pool padding", "pool: ", func(b *B) V { return nn.NewAvgPool1d(2, 1, -1).Forward(b, floats(b, 2, 5, 3)) }},
		{"avg pool groups", "pooling has no groups", func(b *B) V { return b.AvgPool(op.Spatial{Kernel: []int64{2}, Groups: 3}, floats(b, 2, 5, 3)) }},
		{"max pool counts padding", "in which padding never counts", func(b *B) V {
			return b.MaxPool(op.Spatial{Kernel: []int64{2}, CountPadding: true}, floats(b, 2, 5, 3))
		}},
		{"avg pool dilation", "pool: ", func(b *B) V {
			return b.AvgPool(op.Spatial{Kernel: []int64{2}, Dilation: []int64{2}}, floats(b, 2, 5, 3))
		}},
		{"adaptive stride", "adaptive pooling finds its windows itself", func(b *B) V {
			return b.AvgPool(op.Spatial{Kernel: []int64{2}, Adaptive: true, Stride: []int64{2}}, floats(b, 2, 5, 3))
		}},
		{"adaptive 0", "pool: ", func(b *B) V { return nn.AdaptiveAvgPool{0}.Forward(b, floats(b, 2, 5, 3)) }},
		{"adaptive sizes", "pool: ", func(b *B) V { return nn.AdaptiveMaxPool{2, 2}.Forward(b, floats(b, 2, 5, 3)) }},
		{"upsample scale", "resample: ", func(b *B) V { return nn.Upsample{Scale: -2}.Forward(b, floats(b, 2, 5, 3)) }},
		{"upsample nothing", "resample: ", func(b *B) V { return nn.Upsample{}.Forward(b, floats(b, 2, 5, 3)) }},
		{"upsample NaN", "resample: ", func(b *B) V { return nn.Upsample{Scale: nan}.Forward(b, floats(b, 2, 5, 3)) }},
		{"upsample both", "resample: ", func(b *B) V { return nn.Upsample{Sizes: []int64{7}, Scale: 2}.Forward(b, floats(b, 2, 5, 3)) }},
		{"rope of -2", "rope: ", func(b *B) V { return nn.NewRope(1e4, -2).Forward(b, floats(b, 2, 4, 8), 2) }},
		{"rope of 3", "rope: ", func(b *B) V { return nn.NewRope(1e4, 3).Forward(b, floats(b, 2, 4, 6), 2) }},
		{"rotate partly", "rotating 3 elements", func(b *B) V { return nn.RotatePartly(b, nn.NewRope(1e4, 2), nn.HalfRope, floats(b, 2, 4, 8), 2, 3) }},
		{"rotate form", `"quarter"`, func(b *B) V { return nn.RotatePartly(b, nn.NewRope(1e4, 2), "quarter", floats(b, 2, 4, 8), 2, 2) }},
		{"rotate sections form", `"quarter"`, func(b *B) V {
			return nn.RotateSections(b, "quarter", floats(b, 2, 4, 8), 2, nn.RopeSection{Positions: ids(b, 2, 4), Freq: []float32{1, 2}})
		}},

		{"attention heads 0", "attention: 0 heads do not divide the 8 elements", func(b *B) V { return attend(b, op.Attr{}, 4) }},
		{"attention heads 3", "attention: 3 heads do not divide the 8 elements", func(b *B) V { return attend(b, op.Attr{Heads: 3}, 4) }},
		{"attention heads -2", "attention: -2 heads", func(b *B) V { return attend(b, op.Attr{Heads: -2}, 4) }},
		{"attention kv heads", "do not match", func(b *B) V { return attend(b, op.Attr{Heads: 4, KVHeads: 3}, 4) }},
		{"attention scale", "a scale of NaN", func(b *B) V { return attend(b, op.Attr{Heads: 2, Scale: nan}, 4) }},
		{"attention dropout", "dropout of 1", func(b *B) V { return attend(b, op.Attr{Heads: 2, Prob: 1}, 4) }},
		{"attention window", "window 3 needs causal", func(b *B) V { return attend(b, op.Attr{Heads: 2, Window: 3}, 4) }},
		{"attention window -1", "window -1", func(b *B) V { return attend(b, op.Attr{Heads: 2, Causal: true, Window: -1}, 4) }},
		{"attention causal", "causal with 4 queries and 6 keys", func(b *B) V { return attend(b, op.Attr{Heads: 2, Causal: true}, 6) }},
		{"attention mask", "attention: mask is f32[4 5]", func(b *B) V {
			q := floats(b, 2, 4, 8)
			return b.Attention(op.Attr{Heads: 2}, q, q, q, graph.AttentionMasks{Mask: b.Part("m", dtype.F32, 4, 5)})
		}},
		{"attention mask of ids", "attention: mask is i32[4 4]", func(b *B) V {
			q := floats(b, 2, 4, 8)
			return b.Attention(op.Attr{Heads: 2}, q, q, q, graph.AttentionMasks{Mask: ids(b, 4, 4)})
		}},
		{"attention key mask", "key_mask is f32[2 4], want i32[2 4]", func(b *B) V {
			q := floats(b, 2, 4, 8)
			return b.Attention(op.Attr{Heads: 2}, q, q, q, graph.AttentionMasks{KeyMask: b.Part("m", dtype.F32, 2, 4)})
		}},
	} {
		if err := tracing(nil, graph.Train, c.code); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

// attend is attention of 4 queries to some keys.
func attend(b *graph.Builder, a op.Attr, keys int64) graph.Value {
	k := b.Part("k", dtype.F32, 2, keys, 8)
	return b.Attention(a, floats(b, 2, 4, 8), k, k, graph.AttentionMasks{})
}

// Layers say what is wrong with the numbers they were made with where their code is traced, or before where they have weights of no size.
func TestLayersOutOfRangeAreRefused(t *testing.T) {
	image := []int64{2, 5, 5, 4}
	for _, c := range []struct {
		name, want string
		layer      func() nn.Layer
		dims       []int64 // of x, i32 for embeddings
	}{
		{"linear 0", "[0 3]", func() nn.Layer { return nn.NewLinear(3, 0) }, []int64{2, 3}},
		{"linear -1", "[-1 3]", func() nn.Layer { return nn.NewLinear(3, -1) }, []int64{2, 3}},
		{"linear input", "matmul: ", func() nn.Layer { return nn.NewLinear(4, 5) }, []int64{2, 3}},
		{"embedding 0", "[0 3]", func() nn.Layer { return nn.NewEmbedding(0, 3) }, []int64{2, 3}},
		{"embedding padding", "the padding 7 of an embedding of 5 rows", func() nn.Layer { return nn.NewEmbedding(5, 3).WithPadding(7) }, []int64{2, 3}},
		{"embedding padding -9", "the padding -9 of an embedding of 5 rows", func() nn.Layer { return nn.NewEmbedding(5, 3).WithPadding(-9) }, []int64{2, 3}},
		{"bag mode", "bags reduced by", func() nn.Layer {
			e := nn.NewEmbeddingBag(5, 3)
			e.Mode = op.ReduceProd
			return e
		}, []int64{2, 3}},
		{"bag rank", "embedding_bag: ", func() nn.Layer { return nn.NewEmbeddingBag(5, 3) }, []int64{2}},
		{"conv channels", "conv: ", func() nn.Layer { return nn.NewConv2d(3, 8, 3) }, image},
		{"conv groups 0", "conv: 0 groups; take 1", func() nn.Layer { return nn.NewConv(4, 6, 0, 1, 1) }, image},
		{"conv groups of in", "conv: ", func() nn.Layer { return nn.NewConv(4, 6, 3, 1, 1) }, image},
		{"conv groups of out", "conv: ", func() nn.Layer { return nn.NewConv(4, 6, 4, 1, 1) }, image},
		{"conv groups -1", "groups", func() nn.Layer { return nn.NewConv(4, 6, -1, 1, 1) }, image},
		{"conv groups more", "", func() nn.Layer { return nn.NewConv(4, 8, 8, 1, 1) }, image},
		{"conv kernel", "[8 4 0 0]", func() nn.Layer { return nn.NewConv2d(4, 8, 0) }, image},
		{"conv kernel too large", "conv: ", func() nn.Layer { return nn.NewConv2d(4, 8, 9) }, image},
		{"conv stride", "stride -1", func() nn.Layer { return nn.NewConv2d(4, 8, 3).Strided(-1, 0) }, image},
		{"conv stride 0", "stride 0", func() nn.Layer { return nn.NewConv2d(4, 8, 3).Strided(0, 0) }, image},
		{"conv padding", "padding -1", func() nn.Layer { return nn.NewConv2d(4, 8, 3).Strided(1, -1) }, image},
		{"conv rank", "conv: ", func() nn.Layer { return nn.NewConv1d(4, 8, 3) }, image},
		{"conv padding mode", `"mirror"`, func() nn.Layer {
			l := nn.NewConv2d(4, 8, 3).Strided(1, 1)
			l.PaddingMode = "mirror"
			return l
		}, image},
		{"conv padding mode without padding", `"mirror"`, func() nn.Layer {
			l := nn.NewConv2d(4, 8, 3)
			l.PaddingMode = "mirror"
			return l
		}, image},
		{"conv padding list", "1 numbers of padding by \"reflect\" for 2 spatial dimensions", func() nn.Layer {
			l := nn.NewConv2d(4, 8, 3)
			l.PaddingMode, l.Padding = graph.PadReflect, []int64{1}
			return l
		}, image},
		{"conv dilation", "dilation 0", func() nn.Layer {
			l := nn.NewConv2d(4, 8, 3)
			l.Dilation = []int64{1, 0}
			return l
		}, image},
		{"conv kernel field", "has Kernel [2 2]", func() nn.Layer {
			l := nn.NewConv2d(4, 8, 3)
			l.Kernel = []int64{2, 2}
			return l
		}, image},
		{"transposed stride 0", "stride 0", func() nn.Layer { return nn.NewConvTranspose(4, 8, 1, 2, 2).Strided(0, 0) }, image},
		{"transposed channels", "conv_input: ", func() nn.Layer { return nn.NewConvTranspose(3, 8, 1, 2, 2) }, image},
		{"transposed groups 0", "conv_input: 0 groups; take 1", func() nn.Layer { return nn.NewConvTranspose(4, 6, 0, 2, 2) }, image},
		{"transposed groups", "conv_input: ", func() nn.Layer { return nn.NewConvTranspose(4, 6, 4, 2, 2) }, image},
		{"transposed padding", "conv_input: ", func() nn.Layer { return nn.NewConvTranspose(4, 8, 1, 2, 2).Strided(1, 9) }, image},
		{"transposed output padding", "an output padding of 2 with a stride of 2", func() nn.Layer {
			l := nn.NewConvTranspose(4, 8, 1, 2, 2).Strided(2, 0)
			l.OutputPadding = []int64{2, 0}
			return l
		}, image},
		{"transposed output padding list", "1 numbers of output padding for 2 spatial dimensions", func() nn.Layer {
			l := nn.NewConvTranspose(4, 8, 1, 2, 2)
			l.OutputPadding = []int64{0}
			return l
		}, image},
		{"group norm", "group_norm: 3 groups do not divide the 4 channels", func() nn.Layer { return nn.NewGroupNorm(3, 4) }, image},
		{"group norm of 0 groups", "group_norm: 0 groups do not divide the 4 channels", func() nn.Layer { return nn.NewGroupNorm(0, 4) }, image},
		{"group norm channels", "group_norm: ", func() nn.Layer { return nn.NewGroupNorm(2, 6) }, image},
		{"instance norm channels", "group_norm: ", func() nn.Layer { return nn.NewInstanceNorm(3) }, image},
		{"instance norm of no channels", "group_norm: 0 groups", func() nn.Layer { return nn.NewInstanceNorm(0) }, image},
		{"batch norm channels", "group_norm: ", func() nn.Layer { return nn.NewBatchNorm(3) }, image},
		{"batch norm of a vector", "group_norm: ", func() nn.Layer { return nn.NewBatchNorm(2) }, []int64{2}},
		{"layer norm width", "layer_norm: ", func() nn.Layer { return nn.NewLayerNorm(3, 1e-5) }, image},
		{"prelu channels", "prelu: ", func() nn.Layer { return nn.NewPReLU(3) }, image},
		{"prelu places", "prelu: ", func() nn.Layer { return nn.NewPReLU(4) }, []int64{2, 1}},
		{"dropout", "dropout: a probability of 2", func() nn.Layer { return nn.Dropout(2) }, image},
		{"lstm layers", "lstm: ", func() nn.Layer { return nn.NewLSTM(4, 5, 0, false) }, []int64{2, 3, 4}},
		{"gru layers", "gru: ", func() nn.Layer { return nn.NewGRU(4, 5, -1, false) }, []int64{2, 3, 4}},
		{"rnn hidden", "[0 4]", func() nn.Layer { return nn.NewRNN(4, 0, 1, false) }, []int64{2, 3, 4}},
		{"lstm input", "lstm: f32[2 3 4], want [B T 6]", func() nn.Layer { return nn.NewLSTM(6, 5, 1, false) }, []int64{2, 3, 4}},
		{"lstm dropout", "lstm: a dropout of 1.5 between 1 layers", func() nn.Layer {
			l := nn.NewLSTM(4, 5, 1, false)
			l.Dropout = 1.5
			return l
		}, []int64{2, 3, 4}},
		{"lstm by hand", "lstm: ", func() nn.Layer { return &nn.Recurrent{Cell: nn.LSTMCell, In: 4, Hidden: 5, Layers: 1} }, []int64{2, 3, 4}},
		{"attention heads", "attention: 3 heads do not divide the 4 elements", func() nn.Layer { return nn.NewMultiheadAttention(4, 3) }, []int64{2, 3, 4}},
		{"attention heads 0", "attention: 0 heads", func() nn.Layer { return nn.NewMultiheadAttention(4, 0) }, []int64{2, 3, 4}},
		{"attention width", "matmul: ", func() nn.Layer { return nn.NewMultiheadAttention(6, 3) }, []int64{2, 3, 4}},
		{"attention dropout", "dropout of -1", func() nn.Layer {
			l := nn.NewMultiheadAttention(4, 2)
			l.Dropout = -1
			return l
		}, []int64{2, 3, 4}},
		{"encoder heads", "attention: 3 heads", func() nn.Layer {
			return nn.NewTransformerEncoderLayer(nn.EncoderConfig{Width: 4, Heads: 3, Inner: 8, Eps: 1e-5, Func: nn.ReLU})
		}, []int64{2, 3, 4}},
		{"encoder function", "unary: ", func() nn.Layer {
			return nn.NewTransformerEncoderLayer(nn.EncoderConfig{Width: 4, Heads: 2, Inner: 8, Eps: 1e-5})
		}, []int64{2, 3, 4}},
	} {
		layer := c.layer()
		err := tracing(layer, graph.Train, func(b *graph.Builder) graph.Value {
			switch layer.(type) {
			case *nn.Embedding, *nn.EmbeddingBag:
				return layer.Forward(b, ids(b, c.dims...))
			}
			return layer.Forward(b, floats(b, c.dims...))
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}
