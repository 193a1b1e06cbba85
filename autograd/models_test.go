package autograd_test

import (
	"testing"

	"spillway/autograd"
	"spillway/autograd/gradcheck"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/op"
)

// Small blocks that use the ops the way architectures do.

const (
	samples, length, width, classes = 2, 5, 8, 11
)

func f32(dims ...int64) op.Type { return op.Type{DType: dtype.F32, Shape: dims} }

var blocks = map[string]func(b *graph.Builder) (graph.Role, []graph.Value){
	"llama": llama, "gpt2": gpt2, "encoder": encoder, "embed": embed, "head": head, "skip": skip, "loss": plainLoss, "shared": shared, "mixed": mixed, "adapters": adapters,
}

// llama: norms, grouped heads with head norms and rope, packed, gated feed-forward.
func llama(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Input(f32(samples, length, width))
	positions := b.Part("positions", dtype.I32, samples, length)
	freq := b.Floats("freq", []float32{1, 0.1})
	h := b.RMSNorm(x, b.Param("norm1", f32(width), false), 1e-5)
	q := b.Linear(h, b.Param("q", f32(8, width), false), b.Param("q.bias", f32(8), false))
	k := b.Linear(h, b.Param("k", f32(4, width), false), 0)
	v := b.Linear(h, b.Param("v", f32(4, width), false), 0)
	q = b.RMSNorm(q, b.Param("q_norm", f32(4), false), 1e-5)
	q, k = b.Rope(q, positions, freq, 2, 0), b.Rope(k, positions, freq, 1, 1.1)
	o := b.Attention(op.Attr{Heads: 2, KVHeads: 1, Scale: 0.5, Causal: true, Window: 4}, q, k, v,
		graph.AttentionMasks{Segments: b.Part("segments", dtype.I32, samples, length)})
	x = b.Add(x, b.Linear(o, b.Param("o", f32(width, 8), false), 0))
	h = b.RMSNorm(x, b.Param("norm2", f32(width), false), 1e-5)
	gate := b.Linear(h, b.Param("gate", f32(12, width), false), 0)
	up := b.Linear(h, b.Param("up", f32(12, width), false), 0)
	y := b.Linear(b.Gated(op.SiLU, gate, up), b.Param("down", f32(width, 12), false), 0)
	return graph.Carry, []graph.Value{b.Add(x, y)}
}

// gpt2: biases, [in out] weights, one product for q, k and v, dropout.
func gpt2(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Input(f32(samples, length, width))
	norm := func(x graph.Value, name string) graph.Value {
		return b.LayerNorm(x, b.Param(name, f32(width), false), b.Param(name+".bias", f32(width), false), 1e-5)
	}
	product := func(x graph.Value, name string, in, out int64) graph.Value {
		return b.MatMul(x, b.Param(name, f32(in, out), false), b.Param(name+".bias", f32(out), false))
	}
	qkv := b.Split(product(norm(x, "ln_1"), "c_attn", width, 3*width), width, width, width)
	o := b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 0.5, Causal: true, Prob: 0.2}, qkv[0], qkv[1], qkv[2], graph.AttentionMasks{})
	x = b.Add(x, b.Dropout(product(o, "c_proj", width, width), 0.2))
	h := b.Unary(op.GELUTanh, product(norm(x, "ln_2"), "c_fc", width, 16))
	return graph.Carry, []graph.Value{b.Add(x, b.Dropout(product(h, "mlp", 16, width), 0.2))}
}

// encoder: post-norm, an additive mask and hidden keys, a param used twice, a scale
// per channel.
func encoder(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Input(f32(samples, length, width))
	w := b.Param("w", f32(width, width), false)
	masks := graph.AttentionMasks{KeyMask: b.Part("key_mask", dtype.I32, samples, length), Mask: b.Part("mask", dtype.F32, length, length)}
	o := b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 0.5}, b.Linear(x, w, 0), b.Linear(x, w, 0), x, masks)
	x = b.LayerNorm(b.Add(x, o), b.Param("norm", f32(width), false), 0, 1e-5)
	y := b.Unary(op.GELU, b.MatMul(x, w, 0))
	y = b.Mul(y, b.Param("channel", f32(width), false))
	y = b.Add(b.Scale(y, 0.7), b.Param("position", f32(length, width), false))
	return graph.Carry, []graph.Value{b.Add(x, b.Concat(b.Split(y, 3, 5)[1], b.Split(y, 3, 5)[0]))}
}

// embed: the first block, without carries, giving two.
func embed(b *graph.Builder) (graph.Role, []graph.Value) {
	tokens := b.Part("tokens", dtype.I32, samples, length)
	x := b.Embedding(tokens, b.Param("table", f32(classes, width), false))
	x = b.Add(x, b.Embedding(b.Part("positions", dtype.I32, samples, length), b.Param("wpe", f32(classes, width), false)))
	return graph.Carry, []graph.Value{x, b.Scale(x, 0.5)}
}

// head: the last block, with the fused loss.
func head(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.RMSNorm(b.Input(f32(samples, length, width)), b.Param("norm", f32(width), false), 1e-5)
	return graph.Result, []graph.Value{b.LinearCrossEntropy(x, b.Param("lm_head", f32(classes, width), false),
		b.Part("targets", dtype.I32, samples, length), b.Part("scale", dtype.F32, 1))}
}

// skip: a carry handed through untouched next to one that is used, a split with a
// part nothing reads, a param whose gradient is what arrives.
func skip(b *graph.Builder) (graph.Role, []graph.Value) {
	x, through := b.Input(f32(samples, length, width)), b.Input(f32(samples, length, width))
	part := b.Split(x, 2, 6)
	y := b.Add(b.Concat(part[0], part[0], part[0], part[0]), b.Param("same", f32(samples, length, width), false))
	return graph.Carry, []graph.Value{y, through}
}

// shared: a param whose gradient is read on the way to another one.
func shared(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Scale(b.Input(f32(samples, length, width)), 0.5)
	x = b.Add(x, b.Param("same", f32(samples, length, width), false))
	return graph.Carry, []graph.Value{b.Linear(x, b.Param("w", f32(width, width), false), 0)}
}

// mixed: activations in bf16 next to params in f32.
func mixed(b *graph.Builder) (graph.Role, []graph.Value) {
	half := func(dims ...int64) op.Type { return op.Type{DType: dtype.BF16, Shape: dims} }
	x := b.Input(half(samples, length, width))
	x = b.RMSNorm(x, b.Param("norm", f32(width), false), 1e-5)
	x = b.Linear(x, b.Param("w", half(width, width), false), b.Param("bias", f32(width), false))
	x = b.Mul(b.Cast(x, dtype.F32), b.Param("channel", f32(width), false))
	return graph.Carry, []graph.Value{b.Cast(x, dtype.BF16)}
}

// plainLoss: a last block whose loss is a sum, from logits and from differences.
func plainLoss(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Input(f32(samples, length, width))
	scale := b.Part("scale", dtype.F32, 1)
	logits := b.Linear(x, b.Param("lm_head", f32(classes, width), false), 0)
	loss := b.CrossEntropy(logits, b.Part("targets", dtype.I32, samples, length), scale)
	return graph.Result, []graph.Value{b.Add(loss, b.MeanSquare(x, b.Part("aim", dtype.F32, samples, length, width), scale))}
}

// adapters: two frozen matmuls of one input, each with a short pair next to it.
func adapters(b *graph.Builder) (graph.Role, []graph.Value) {
	x := b.Input(f32(samples, length, width))
	product := func(name string) graph.Value {
		y := b.Linear(x, b.Param(name, f32(width, width), true), 0)
		low := b.Scale(b.Linear(x, b.Param(name+".A", f32(2, width), false), 0), 0.5)
		return b.LinearPlus(low, b.Param(name+".B", f32(width, 2), false), y)
	}
	return graph.Carry, []graph.Value{b.Gated(op.SiLU, product("gate"), product("up"))}
}

// trace builds a block's program, with the named params frozen.
func trace(t *testing.T, name string) *graph.Program {
	t.Helper()
	b := graph.NewBuilder(name, graph.Config{MicroBatchSize: samples, Seq: length, DType: dtype.F32, Task: graph.Train})
	role, out := blocks[name](b)
	p, err := b.Program(role, out...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// inputs are numbers for a program: random real ones, integers that suit all parts.
func inputs(p *graph.Program) values {
	in := values{}
	for i, port := range p.Inputs {
		a := numtest.Random(p.Type(port.Value), uint64(i))
		for k := range a.I {
			a.I[k] = int32((k*7 + i) % classes)
			if port.Name == "segments" || port.Name == "key_mask" {
				a.I[k] = int32(k % length / 3)
			}
		}
		in[port.Value] = a
	}
	return in
}

var args = op.Args{Key: 42, Row: 5}

func TestBlocksAgreeWithFiniteDifferences(t *testing.T) {
	for name := range blocks {
		t.Run(name, func(t *testing.T) {
			p := trace(t, name)
			if err := gradcheck.Program(p, inputs(p), args); err != nil {
				t.Error(err)
			}
		})
	}
}

// Next to adapters no gradient is summed by an op of its own.
func TestMatmulsOfAdaptersAddTheirGradients(t *testing.T) {
	j := mustDifferentiate(t, trace(t, "adapters"), autograd.Options{InputGrad: true})
	plus := 0
	for _, n := range j.Program.Nodes[j.Forward:] {
		if n.Kind == op.Add {
			t.Errorf("a sum by itself: %v", j.Program.Call(n))
		}
		if n.Attr.Plus {
			plus++
		}
	}
	if plus != 3 {
		t.Errorf("%d matmuls add their part, want 3 of the 4 parts of the input's gradient", plus)
	}
}
