package op_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/safetensors"
	"spillway/shape"
)

// The references and the gradient rules against PyTorch, whose numbers are in
// testdata/reference (computed in float64, stored in float32).

const reference = "../testdata/reference"

// torchCase is one entry of ops.json.
type torchCase struct {
	Name    string             `json:"name"`
	Op      string             `json:"op"`
	Inputs  map[string][]int64 `json:"inputs"`
	Options struct {
		Eps, Theta, Scale float64
		Approximate       string
		Causal            bool
		Window            int64
		Documents         []int32
	} `json:"options"`
}

type values = map[graph.Value]op.Array

// trial builds the program of a torch case and collects its inputs.
type trial struct {
	*graph.Builder
	torchCase
	file   *safetensors.File
	t      *testing.T
	values values
	params []string // names in order of their ports
	whole  bool     // shapes are as they are stored
}

func TestReferencesAgreeWithTorch(t *testing.T) {
	var list struct{ Cases []torchCase }
	readJSON(t, "ops.json", &list)
	file, err := safetensors.Open(filepath.Join(reference, "ops.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tried := 0
	for _, c := range list.Cases {
		build, ok := torchPrograms[c.Op]
		if !ok {
			continue
		}
		tried++
		t.Run(c.Name, func(t *testing.T) {
			tr := &trial{graph.NewBuilder(c.Name, graph.Config{Task: graph.Train}), c, file, t, values{}, nil, false}
			tr.compare(build(tr))
		})
	}
	if want := len(list.Cases) - 1; tried != want { // softmax is no op of its own
		t.Errorf("tried %d cases of %d", tried, want)
	}
}

// torchPrograms are the ops of ops.json in ours.
var torchPrograms = map[string]func(b *trial) graph.Value{
	"linear": func(b *trial) graph.Value { return b.Linear(b.real("x"), b.real("weight"), b.real("bias")) },
	"layernorm": func(b *trial) graph.Value {
		return b.LayerNorm(b.real("x"), b.real("weight"), b.real("bias"), b.Options.Eps)
	},
	"rmsnorm":   func(b *trial) graph.Value { return b.RMSNorm(b.real("x"), b.real("weight"), b.Options.Eps) },
	"silu":      func(b *trial) graph.Value { return b.Unary(op.SiLU, b.real("x")) },
	"relu":      func(b *trial) graph.Value { return b.Unary(op.ReLU, b.real("x")) },
	"swiglu":    func(b *trial) graph.Value { return b.Gated(op.SiLU, b.real("gate"), b.real("up")) },
	"embedding": func(b *trial) graph.Value { return b.Embedding(b.integers("ids"), b.real("table")) },
	"mse": func(b *trial) graph.Value {
		x := b.real("x")
		return b.MeanSquare(x, b.part("target"), b.mean(b.TypeOf(x).Shape.Elements()))
	},
	"cross_entropy": func(b *trial) graph.Value {
		targets := b.integers("targets")
		return b.CrossEntropy(b.real("logits"), targets, b.mean(counted(b.values[targets].I)))
	},
	"linear_cross_entropy": func(b *trial) graph.Value {
		targets := b.integers("targets")
		return b.LinearCrossEntropy(b.real("x"), b.real("weight"), targets, b.mean(counted(b.values[targets].I)))
	},
	"gelu": func(b *trial) graph.Value {
		f := op.GELU
		if b.Options.Approximate == "tanh" {
			f = op.GELUTanh
		}
		return b.Unary(f, b.real("x"))
	},
	"rope": func(b *trial) graph.Value {
		heads, width := b.Inputs["x"][2], b.Inputs["x"][3]
		freq := make([]float32, width/2)
		for i := range freq {
			freq[i] = float32(math.Pow(b.Options.Theta, -2*float64(i)/float64(width)))
		}
		return b.Rope(b.real("x"), b.integers("positions"), b.Floats("freq", freq), heads, 0)
	},
	"attention": func(b *trial) graph.Value {
		o := b.Options
		a := op.Attr{Heads: b.Inputs["q"][2], KVHeads: b.Inputs["k"][2], Scale: o.Scale, Causal: o.Causal, Window: o.Window}
		in := []graph.Value{b.real("q"), b.real("k"), b.real("v")}
		if a.Segments = o.Documents != nil; a.Segments {
			in = append(in, b.given("segments", op.Array{Type: op.Type{DType: dtype.I32, Shape: b.Inputs["k"][:2]}, I: o.Documents}))
		}
		return b.Apply(op.Attention, a, in...)[0]
	},
}

// counted targets are those not ignored.
func counted(targets []int32) (n int64) {
	for _, t := range targets {
		if t != op.IgnoreIndex {
			n++
		}
	}
	return n
}

// mean is the scale that makes a sum of n a mean.
func (b *trial) mean(n int64) graph.Value {
	return b.given("scale", op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(1)}, F: []float64{1 / float64(n)}})
}

// real is an input with a gradient; [.. head dim] counts as one dimension.
func (b *trial) real(name string) graph.Value {
	a := b.read(b.Name + "." + name)
	if len(a.Type.Shape) == 4 && !b.whole {
		s := a.Type.Shape
		a.Type.Shape = shape.Shape{s[0], s[1], s[2] * s[3]}
	}
	v := b.Param(name, a.Type, false)
	b.values[v] = a
	b.params = append(b.params, name)
	return v
}

func (b *trial) part(name string) graph.Value     { return b.given(name, b.read(b.Name+"."+name)) }
func (b *trial) integers(name string) graph.Value { return b.part(name) }

func (b *trial) given(name string, a op.Array) graph.Value {
	v := b.Part(name, a.Type.DType, a.Type.Shape...)
	b.values[v] = a
	return v
}

// read decodes a tensor of the file; its 64-bit integers become 32-bit ones.
func (b *trial) read(name string) op.Array {
	tensor, ok := b.file.Tensor(name)
	if !ok {
		b.t.Fatalf("no tensor %s", name)
	}
	raw := make([]byte, tensor.Bytes)
	if _, err := tensor.ReadAt(raw, 0); err != nil {
		b.t.Fatal(err)
	}
	if tensor.Type == dtype.I64 {
		a := op.NewArray(op.Type{DType: dtype.I32, Shape: tensor.Shape})
		for i := range a.I {
			a.I[i] = int32(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		return a
	}
	a, err := op.Decode(op.Type{DType: tensor.Type, Shape: tensor.Shape}, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// compare runs the program and its gradient. What torch stores is rounded to
// float32; the angles of rope are float32 here and float64 there.
func (b *trial) compare(out graph.Value) {
	bound := 1e-6
	if b.Op == "rope" {
		bound = 1e-5
	}
	p, err := b.Program(graph.Carry, out)
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := autograd.Differentiate(p, autograd.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.values[j.GradOut[0]] = op.Array{Type: p.Type(out), F: b.read(b.Name + ".grad_out").F}
	got, err := graphtest.Run(j.Program, b.values, op.Args{})
	if err != nil {
		b.t.Fatal(err)
	}
	check := func(what string, v graph.Value) {
		if d := numtest.Compare(got[v].F, b.read(b.Name+"."+what).F); !(d.Max <= bound) {
			b.t.Errorf("%s: %v from PyTorch's", what, d)
		}
	}
	check("out", out)
	for i, name := range b.params {
		check("grad."+name, j.GradParam[i])
	}
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(reference, name))
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
