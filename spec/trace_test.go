package spec_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/spec"
)

var config = graph.Config{MicroBatchSize: 2, Seq: 5, DType: dtype.F32, Task: graph.Train}

// tower is a chain of linear layers; block i uses activation funcs[i].
type tower struct {
	Layers []*nn.Linear `hf:"layers"`
	funcs  []nn.Activation
}

func newTower(width int64, funcs ...nn.Activation) *tower {
	m := &tower{funcs: funcs}
	for range funcs {
		m.Layers = append(m.Layers, nn.NewLinear(width, width))
	}
	return m
}

func (m *tower) Blocks() (blocks []nn.Block) {
	for i, l := range m.Layers {
		blocks = append(blocks, nn.Block{Name: fmt.Sprintf("layers.%d", i), Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			if i == 0 {
				in = []graph.Value{nn.Input(b, l.Weight.Shape[1])}
			}
			x := m.funcs[i].Forward(b, l.Forward(b, in[0]))
			if i == len(m.Layers)-1 {
				x = nn.MeanSquare.Forward(b, x)
			}
			return []graph.Value{x}
		}})
	}
	return blocks
}

func TestEqualBlocksAreOneKind(t *testing.T) {
	relu, gelu := nn.ReLU, nn.GELU
	m, err := spec.Trace("tower", "own", newTower(4, relu, relu, relu, gelu, relu, relu), config)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, b := range m.Blocks {
		kinds = append(kinds, m.Kinds[b.Kind].Name)
	}
	// The first reads the batch, the last ends in the loss, the fourth has a function of its own.
	want := "layers layers#2 layers#2 layers#3 layers#2 layers#4"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("kinds are %s, want %s", got, want)
	}
	for i, b := range m.Blocks {
		for k, ending := range []string{"weight", "bias"} {
			if got, want := m.Params[b.Params[k]].Name, fmt.Sprintf("layers.%d.%s", i, ending); got != want {
				t.Errorf("block %d has %s, want %s", i, got, want)
			}
		}
	}
	if len(m.Batch) != 3 || m.Count() != 6*(16+4) || m.Trainable() != m.Count() {
		t.Errorf("parts %v, %d params, %d trainable", m.Batch, m.Count(), m.Trainable())
	}
}

// blocks is a model of given blocks and no params of its own.
type blocks []nn.Block

func (b blocks) Blocks() []nn.Block { return b }

// one makes a block of a function that gives one value.
func one(name string, f func(b *graph.Builder) graph.Value) nn.Block {
	return nn.Block{Name: name, Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value { return []graph.Value{f(b)} }}
}

type holder struct {
	blocks
	Unused *nn.Param `hf:"unused,optional"`
}

func TestTraceExplainsMistakes(t *testing.T) {
	tokens := func(b *graph.Builder) graph.Value { return nn.Input(b, 4) }
	loose := nn.NewParam(nn.Constant(0), 4)
	for want, m := range map[string]nn.Model{
		"has no name: every field on the way to it needs an hf tag": &holder{blocks: blocks{one("a", func(b *graph.Builder) graph.Value {
			return b.Add(tokens(b), loose.Value(b))
		})}},
		"param stranger is not part of the model": &holder{blocks: blocks{one("a", func(b *graph.Builder) graph.Value {
			return b.Add(tokens(b), b.Param("stranger", op.Type{DType: dtype.F32, Shape: []int64{4}}, false))
		})}},
		"param unused [4] is in the model, but no block uses it": &holder{blocks: blocks{one("a", tokens)}, Unused: nn.NewParam(nn.Constant(0), 4)},
		`two blocks are named "a"`:                               &holder{blocks: blocks{one("a", tokens), one("a", tokens)}},
		"has no blocks":                                          &holder{},
		"batch part input is f32[2 3] here and f32[2 4] in an earlier block": &holder{blocks: blocks{one("a", tokens), one("b", func(b *graph.Builder) graph.Value {
			return nn.Input(b, 3)
		})}},
		"a returns no value": &holder{blocks: blocks{one("a", func(b *graph.Builder) graph.Value { return 0 })}},
		"gives 0 values":     &holder{blocks: blocks{{Name: "a", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value { return nil }}}},
		"trace_test.go:": &holder{blocks: blocks{one("a", func(b *graph.Builder) graph.Value {
			return b.Linear(tokens(b), tokens(b), tokens(b))
		})}},
	} {
		if _, err := spec.Trace("wrong", "own", m, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Model code that panics, or that uses a value of another block, is a mistake with its block and its line; the first mistake
// counts where code goes on and fails for it.
func TestMistakesOfCodeNameTheLine(t *testing.T) {
	var held graph.Value
	input := func(b *graph.Builder, _ []graph.Value) []graph.Value {
		held = b.Scale(b.Scale(nn.Input(b, 4), 2), 2)
		return []graph.Value{held}
	}
	type forward = func(b *graph.Builder, in []graph.Value) []graph.Value
	for want, second := range map[string]forward{
		"the code of the block failed: oh":                                         func(*graph.Builder, []graph.Value) []graph.Value { panic("oh") },
		"index out of range [1] with length 1 (the block before returns 1 values)": func(_ *graph.Builder, in []graph.Value) []graph.Value { return []graph.Value{in[len(in)]} },
		"nil pointer": func(b *graph.Builder, in []graph.Value) []graph.Value {
			var none *nn.Linear
			return []graph.Value{none.Forward(b, in[0])}
		},
		"unary: operand 0 is a value of another block": func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{b.Unary(op.Exp, held)}
		},
		"a value of another block": func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{b.Add(in[0], held)}
		},
		"f32[2 4] has no axis 7": func(b *graph.Builder, in []graph.Value) []graph.Value {
			x := b.Roll(in[0], 7, 1)
			return []graph.Value{b.Slice(x, 0, 0, b.TypeOf(x).Shape[1], 1)}
		},
	} {
		_, err := spec.Trace("wrong", "own", &holder{blocks: blocks{{Name: "first", Forward: input}, {Name: "second", Forward: second}}}, config)
		for _, part := range []string{want, "second: trace_test.go:"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want an error with %q", err, part)
			}
		}
	}
	returns := func(*graph.Builder, []graph.Value) []graph.Value { return []graph.Value{held} }
	if _, err := spec.Trace("wrong", "own", &holder{blocks: blocks{{Name: "first", Forward: input}, {Name: "second", Forward: returns}}}, config); err == nil || !strings.Contains(err.Error(), "second returns a value of another block") {
		t.Errorf("a value of another block is returned: %v", err)
	}
}

func TestTraceRefusesImpossibleConfigs(t *testing.T) {
	for want, c := range map[string]graph.Config{
		"a micro-batch of 0 samples":           {Seq: 1, DType: dtype.F32, Task: graph.Eval},
		"cannot compute with element type nf4": {MicroBatchSize: 1, Seq: 1, DType: quant.NF4, Task: graph.Eval},
		"cannot compute with element type i32": {MicroBatchSize: 1, Seq: 1, DType: dtype.I32, Task: graph.Eval},
		`unknown task "dream"`:                 {MicroBatchSize: 1, Seq: 1, DType: dtype.F32, Task: "dream"},
		"more elements than 63 bits count":     {MicroBatchSize: 1 << 40, Seq: 1 << 40, DType: dtype.F32, Task: graph.Eval},
	} {
		net := &nn.Sequential{Layers: []nn.Layer{nn.NewEmbedding(4, 2)}, Loss: nn.CrossEntropy}
		if _, err := spec.Trace("wrong", "own", net, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Several goroutines may trace one model, for different tasks, once it is bound.
func TestTraceOfOneModelByMany(t *testing.T) {
	m := newTower(4, nn.ReLU, nn.ReLU)
	if _, err := nn.Bind(m); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for _, task := range []graph.Task{graph.Infer, graph.Eval, graph.Train} {
		wait.Go(func() {
			c := config
			c.Task = task
			if _, err := spec.Trace("tower", "own", m, c); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

// Verify notices whatever is broken in a model read from elsewhere.
func TestVerifyNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func(m *spec.Model){
		"kind":        func(m *spec.Model) { m.Blocks[1].Kind = 9 },
		"param place": func(m *spec.Model) { m.Blocks[1].Params[0] = -1 },
		"param count": func(m *spec.Model) { m.Blocks[1].Params = m.Blocks[1].Params[:1] },
		"param type":  func(m *spec.Model) { m.Params[2].Type.DType = dtype.BF16 },
		"frozen":      func(m *spec.Model) { m.Params[2].Frozen = true },
		"no blocks":   func(m *spec.Model) { m.Blocks = nil },
		"cut short":   func(m *spec.Model) { m.Blocks = m.Blocks[:2] },
		"cut off":     func(m *spec.Model) { m.Blocks = m.Blocks[1:] },
		"swapped":     func(m *spec.Model) { m.Blocks[0], m.Blocks[2] = m.Blocks[2], m.Blocks[0] },
	} {
		m, err := spec.Trace("tower", "own", newTower(4, nn.ReLU, nn.ReLU, nn.ReLU), config)
		if err != nil {
			t.Fatal(err)
		}
		damage(m)
		if m.Verify() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// 100,000 blocks of a weight and a bias.
func BenchmarkTrace200000Tensors(b *testing.B) {
	funcs := make([]nn.Activation, 100_000)
	for i := range funcs {
		funcs[i] = nn.ReLU
	}
	m := newTower(4, funcs...)
	for b.Loop() {
		if _, err := spec.Trace("tower", "own", m, config); err != nil {
			b.Fatal(err)
		}
	}
}

// Floats of a batch that blocks only cast to 16 bits come in 16 bits; where one reads them as they are, or all compute in f32,
// they come in 32.
func TestFloatsOfABatchComeInTheTypeTheyAreReadIn(t *testing.T) {
	part := func(b *graph.Builder) graph.Value { return b.Part("input", dtype.F32, b.MicroBatchSize, 4) }
	next := func(f func(b *graph.Builder) graph.Value) nn.Block {
		return nn.Block{Name: "next", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value { return []graph.Value{b.Add(in[0], f(b))} }}
	}
	first := one("first", func(b *graph.Builder) graph.Value { return nn.Input(b, 4) })
	for _, c := range []struct {
		name     string
		m        blocks
		computes dtype.Type
		want     dtype.Type
		casts    int
	}{
		{"cast in both blocks", blocks{first, next(func(b *graph.Builder) graph.Value { return nn.Input(b, 4) })}, dtype.BF16, dtype.BF16, 0},
		{"f16", blocks{first, next(func(b *graph.Builder) graph.Value { return b.Cast(part(b), b.DType) })}, dtype.F16, dtype.F16, 0},
		{"read as it is by one", blocks{first, next(func(b *graph.Builder) graph.Value { return b.Cast(b.Scale(part(b), 2), b.DType) })}, dtype.BF16, dtype.F32, 2},
		{"two types", blocks{first, next(func(b *graph.Builder) graph.Value { return b.Cast(b.Cast(part(b), dtype.F16), b.DType) })}, dtype.BF16, dtype.F32, 3},
		{"f32", blocks{first, next(func(b *graph.Builder) graph.Value { return part(b) })}, dtype.F32, dtype.F32, 0},
	} {
		m, err := spec.Trace(c.name, "blocks", c.m, graph.Config{MicroBatchSize: 2, Seq: 3, DType: c.computes, Task: graph.Infer})
		if err != nil {
			t.Fatal(err)
		}
		casts := 0
		for _, k := range m.Kinds {
			for _, n := range k.Program.Nodes {
				if n.Kind == op.Cast {
					casts++
				}
			}
		}
		if got := m.Batch[0].Type.DType; got != c.want || casts != c.casts {
			t.Errorf("%s: the batch is %v, with %d casts; want %v and %d", c.name, got, casts, c.want, c.casts)
		}
	}
}
