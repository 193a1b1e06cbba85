package graph

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

func f32(dims ...int) op.Type { return op.Type{DType: dtype.F32, Shape: shape.Of(dims...)} }

// linear is a small right program: y = relu(x·wᵀ)·c.
func linear(t *testing.T) *Program {
	t.Helper()
	b := NewBuilder("linear", Config{})
	h := b.Linear(b.Input(f32(2, 3)), b.Param("w", f32(4, 3), false), 0)
	p, err := b.Program(Carry, b.Mul(b.Unary(op.ReLU, h), b.Floats("c", []float32{1, 2, 3, 4})))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestVerifyRefusesMalformedPrograms(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(p *Program)
	}{
		{"a value made twice", "node 1 unary makes value 3 a second time", func(p *Program) { p.Nodes[1].Out = []Value{3} }},
		{"an input made by a node", "node 0 matmul makes value 1 a second time", func(p *Program) { p.Nodes[0].Out = []Value{1} }},
		{"used before it is made", "node 0 unary: program linear: value 3 is used before it is made", func(p *Program) {
			p.Nodes[0], p.Nodes[1] = p.Nodes[1], p.Nodes[0]
		}},
		{"no such value", "value 99 is used before it is made", func(p *Program) { p.Nodes[0].In = []Value{1, 99} }},
		{"no value", "value 0 is used", func(p *Program) { p.Nodes[0].In = []Value{1, 0} }},
		{"a negative value", "value -1 is used", func(p *Program) { p.Nodes[0].In = []Value{1, -1} }},
		{"makes no value", "makes value 0 of", func(p *Program) { p.Nodes[0].Out = []Value{0} }},
		{"output nobody makes", "output carry", func(p *Program) { p.Outputs[0].Value = 99 }},
		{"a type its op does not give", "output 0 is f32[2 5], its rule gives f32[2 4]", func(p *Program) { p.Types[p.Nodes[0].Out[0]] = f32(2, 5) }},
		{"operands its op refuses", "inner dimensions", func(p *Program) { p.Types[1] = f32(2, 7) }},
		{"an op that does not exist", `unknown op kind "convolve"`, func(p *Program) { p.Nodes[0].Kind = "convolve" }},
		{"too few outputs", "has 0 outputs, its rule gives 1", func(p *Program) { p.Nodes[2].Out = nil; p.Outputs = nil }},
		{"a constant too short", "constant c has 12 bytes, its type f32[4] needs 16", func(p *Program) { p.Inputs[2].Data = p.Inputs[2].Data[:12] }},
		{"a negative dimension", "negative dimension", func(p *Program) { p.Types[1] = f32(-2, 3) }},
	} {
		p := linear(t)
		c.spoil(p)
		if err := p.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestProgramsSurviveJSON(t *testing.T) {
	p := linear(t)
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Program
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if err := back.Verify(); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(p, &back) {
		t.Errorf("%s reads as %+v, want %+v", raw, back, *p)
	}
}

// The first mistake is kept, what follows does nothing, and Program has it.
func TestBuilderKeepsTheFirstMistake(t *testing.T) {
	for _, c := range []struct {
		name, want string
		build      func(b *Builder) Value
	}{
		{"shapes", "inner dimensions 3 and 5 differ", func(b *Builder) Value {
			h := b.Linear(b.Input(f32(2, 3)), b.Param("w", f32(4, 5), false), 0)
			parts := b.Split(b.Unary(op.ReLU, h), 1, 3)
			return b.Add(parts[0], parts[1])
		}},
		{"one name, two types", "param w is f32[4 5] and f32[5 4]", func(b *Builder) Value {
			b.Param("w", f32(4, 5), false)
			return b.Param("w", f32(5, 4), false)
		}},
		{"no value", "add: operand 1 is no value", func(b *Builder) Value { return b.Add(b.Input(f32(2)), 0) }},
		{"a shape that cannot be", "negative dimension", func(b *Builder) Value { return b.Input(f32(-1)) }},
		{"its own", "vocabulary of 7", func(b *Builder) Value {
			b.Fail("vocabulary of %d", 7)
			b.Fail("something else")
			return b.Input(f32(1))
		}},
	} {
		b := NewBuilder("block", Config{})
		_, err := b.Program(Carry, c.build(b))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "block: ") || b.Err() != err {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
	b := NewBuilder("block", Config{})
	if _, err := b.Program(Carry, 5); err == nil {
		t.Error("returned a value that does not exist")
	}
}

// Asked for twice, a param, part or constant is one value; roles count their own.
func TestNamedInputs(t *testing.T) {
	b := NewBuilder("block", Config{})
	w, x := b.Param("w", f32(2), false), b.Part("w", dtype.F32, 2)
	if b.Param("w", f32(2), false) != w || b.Part("w", dtype.F32, 2) != x || w == x {
		t.Error("names are not kept apart by role")
	}
	second := b.Param("w2", f32(2), true)
	carry := b.Input(f32(2))
	p, err := b.Program(Carry, b.Add(b.Add(w, x), b.Add(second, carry)))
	if err != nil {
		t.Fatal(err)
	}
	params := Ports(p.Inputs, Param)
	if len(params) != 2 || params[1].Index != 1 || !params[1].Frozen || params[0].Frozen {
		t.Errorf("params %+v", params)
	}
	if in := Ports(p.Inputs, Carry); len(in) != 1 || in[0].Index != 0 || in[0].Value != carry {
		t.Errorf("carries %+v", in)
	}
}

// Dropout is an op only while training, with a stream of its own each time.
func TestDropoutIsForTraining(t *testing.T) {
	for _, task := range []Task{Infer, Eval, Train} {
		b := NewBuilder("block", Config{Task: task})
		x := b.Input(f32(2, 3, 4))
		y := b.Dropout(b.Dropout(x, 0.1), 0.1)
		y = b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 1, Prob: 0.1}, y, y, y, AttentionMasks{})
		p, err := b.Program(Carry, y)
		if err != nil {
			t.Fatal(err)
		}
		streams := map[uint32]bool{}
		for _, n := range p.Nodes {
			if n.Attr.Prob > 0 {
				streams[n.Attr.Stream] = true
			}
		}
		want := 0
		if task == Train {
			want = 3
		}
		if len(streams) != want {
			t.Errorf("%s: %d random streams, want %d", task, len(streams), want)
		}
	}
}

func TestCostIsTheSumOfItsNodes(t *testing.T) {
	// The product: 2·2·3·4 operations; relu: 12 per element; the scaling: one.
	if got, want := linear(t).Cost().Flops, float64(2*2*3*4+12*8+8); got != want {
		t.Errorf("%v operations, want %v", got, want)
	}
}

// Constants of one name and different numbers are different; those of the same numbers are one.
func TestConstants(t *testing.T) {
	b := NewBuilder("constants", Config{})
	x, y, z := b.Floats("rope", []float32{1, 2}), b.Floats("rope", []float32{1, 3}), b.Floats("rope", []float32{1, 2})
	if x == y || x != z || b.Floats("rope", []float32{1, 2}, 2, 1) == x {
		t.Error("constants are mixed up")
	}
	if ids := b.Integers("ids", []int32{0, 2, 1, 1}, 2, 2); b.TypeOf(ids).String() != "i32[2 2]" {
		t.Errorf("ids are %v", b.TypeOf(ids))
	}
	for _, c := range []struct {
		want  string
		build func(b *Builder)
	}{
		{"constant x has 3 numbers, shape [2 2] has 4", func(b *Builder) { b.Floats("x", make([]float32, 3), 2, 2) }},
		{"embedding: constant ids has 5 at place 1, want 0 to 4", func(b *Builder) {
			b.Embedding(b.Integers("ids", []int32{4, 5}), b.Input(op.Type{DType: dtype.F32, Shape: []int64{5, 3}}))
		}},
		{"matmul of f32[3] (transposed: true)", func(b *Builder) {
			b.BatchMatMul(b.Floats("x", make([]float32, 3)), b.Floats("y", make([]float32, 9), 3, 3), true, false)
		}},
	} {
		b := NewBuilder("constants", Config{})
		if c.build(b); b.Err() == nil || !strings.Contains(b.Err().Error(), c.want) {
			t.Errorf("error %v, want %q in it", b.Err(), c.want)
		}
	}
}

// What model code does with the slices it gave and got changes nothing.
func TestSlicesBelongToTheCaller(t *testing.T) {
	b := NewBuilder("slices", Config{})
	x := b.Input(f32(2, 6))
	parts := b.Split(x, 2, 4)
	for i, p := range parts {
		parts[i] = b.Scale(p, 2)
	}
	y := b.Concat(parts...)
	parts[0] = x
	dims := []int64{3, 4}
	y = b.Reshape(y, dims...)
	dims[0], dims[1] = 7, 7
	p, err := b.Program(Carry, y)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Type(y).Shape.Equal(shape.Of(3, 4)) || !p.Nodes[4].Attr.Shape.Equal(shape.Of(3, 4)) {
		t.Errorf("reshaped to %v, attributes %v", p.Type(y), p.Nodes[4].Attr.Shape)
	}
	if split, joined := p.Nodes[0], p.Nodes[3]; split.Out[0] == joined.In[0] || joined.In[0] == x {
		t.Errorf("%v is split to %v, and %v is joined", x, split.Out, joined.In)
	}
}

// Real numbers of two types are f32 together, as by torch.promote_types; a condition does not count.
func TestTypesArePromotedAsInTorch(t *testing.T) {
	for name, make := range map[string]func(b *Builder, x, y Value) Value{
		"add": (*Builder).Add, "mul": (*Builder).Mul, "sub": (*Builder).Sub, "div": (*Builder).Div, "maximum": (*Builder).Maximum,
		"gated":  func(b *Builder, x, y Value) Value { return b.Gated(op.SiLU, x, y) },
		"concat": func(b *Builder, x, y Value) Value { return b.Slice(b.ConcatAxis(0, x, x, y, x), 0, 0, 2, 1) },
		"where":  func(b *Builder, x, y Value) Value { return b.Where(b.Compare(op.Less, x, y), x, y) },
		"if":     func(b *Builder, x, y Value) Value { return b.Binary(op.If, y, x) },
	} {
		for _, types := range [][3]dtype.Type{{dtype.F32, dtype.BF16, dtype.F32}, {dtype.BF16, dtype.F32, dtype.F32}, {dtype.BF16, dtype.F16, dtype.F32}, {dtype.F16, dtype.F16, dtype.F16}} {
			b := NewBuilder(name, Config{DType: dtype.BF16})
			out := make(b, b.Part("x", types[0], 2, 3), b.Part("y", types[1], 2, 3))
			want := op.Type{DType: types[2], Shape: shape.Of(2, 3)}
			if name == "if" {
				want.DType = types[0]
			}
			if _, err := b.Program(Carry, out); err != nil || !b.TypeOf(out).Equal(want) {
				t.Errorf("%s of %v and %v is %v, want %v: %v", name, types[0], types[1], b.TypeOf(out), want, err)
			}
		}
	}
}
