package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/autograd"
	"spillway/autograd/gradcheck"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cpu/kernel"
	"spillway/device/cuda"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/nn"
	"spillway/op"
	"spillway/shape"
)

// The model learns through the op, which is traced, differentiated, planned and run.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 100); err != nil {
		t.Fatal(err)
	}
	var first, last float64
	var step int
	if _, err := fmt.Sscanf(out.String(), "step %d loss %f\nstep %d loss %f", &step, &first, &step, &last); err != nil || !(last < first/4) {
		t.Errorf("printed %q (%v)", out.String(), err)
	}
}

// Its kernels pass the tests of all kernels, also on 16-bit operands: the cases come with
// the op.
func TestKernels(t *testing.T) {
	testKernels(t, cpu.Open(cpu.Options{Threads: 1}))
}

func TestKernelsOnGPU(t *testing.T) {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		t.Skip("no GPU: ", err)
	}
	testKernels(t, d)
}

func testKernels(t *testing.T, d device.Device) {
	defer d.Close()
	tried := 0
	for _, dt := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range op.Cases(dt) {
			if c.Call.Kind != Clamp && c.Call.Kind != ClampGrad {
				continue
			}
			tried++
			if err := devicetest.Case(d, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if tried != 4 {
		t.Errorf("%d cases of the op were tried, want 4", tried)
	}
}

// Ops that go wrong: a kernel that panics, one that writes past its output, one without a gradient, a gradient
// of another shape, and one that is twice what it should be.
func init() {
	like := func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1], nil }
	copied := func(_ op.Call, in, out []op.Array, _ op.Args) { copy(out[0].F, in[0].F) }
	for kind, run := range map[op.Kind]func(x, y []float32){
		"test_panics":     func([]float32, []float32) { panic("oh") },
		"test_overruns":   func(x, y []float32) { y[len(y)] = x[0] },
		"test_endless":    func(x, y []float32) { copy(y, x) },
		"test_misshapen":  func(x, y []float32) { copy(y, x) },
		"test_doubles":    func(x, y []float32) { copy(y, x) },
		"test_nans":       func(x, y []float32) { copy(y, x) },
		"test_misbehaves": func(x, y []float32) { copy(y, x); x[0]++ },
	} {
		op.Register(op.Op{Kind: kind, Takes: 1, Infer: like, Reference: copied, Cases: func(l *op.CaseList) { l.Add("3x4", kind, op.Attr{}, l.X(3, 4)) }})
		cpu.Register(kind, func(op.Call, int) cpu.Program {
			return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) { run(cpu.F32(l, 0), cpu.F32(l, 1)) }}
		})
		if kind != "test_endless" {
			autograd.Register(kind, func(r *autograd.Reverse, n graph.Node, dy []graph.Value) []graph.Value {
				switch kind {
				case "test_misshapen":
					return []graph.Value{r.EmitOne(op.Reshape, op.Attr{Shape: []int64{1, r.TypeOf(dy[0]).Shape.Elements()}}, dy[0])}
				case "test_nans":
					return []graph.Value{r.EmitOne(op.Scale, op.Attr{Scale: math.NaN()}, dy[0])}
				case "test_doubles":
					return []graph.Value{r.EmitOne(op.Scale, op.Attr{Scale: 2}, dy[0])}
				}
				return dy
			})
		}
	}
}

// Ops that go wrong. Shape rules panic, give nothing, or give an impossible shape or type. Gradient rules panic or give
// too few gradients. Makers of kernels panic or ask for negative scratch memory. A kernel reads an operand that it does
// not have.
func init() {
	type rule = func(op.Attr, []op.Type) ([]op.Type, error)
	like := func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1], nil }
	copied := cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) { copy(cpu.F32(l, 1), cpu.F32(l, 0)) }}
	type bad struct {
		infer    rule
		gradient autograd.Rule
		make     func() cpu.Program
	}
	same := func(_ *autograd.Reverse, _ graph.Node, dy []graph.Value) []graph.Value { return dy }
	for kind, b := range map[op.Kind]bad{
		"test_rule_panics": {infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:9], nil }},
		"test_rule_empty":  {infer: func(op.Attr, []op.Type) ([]op.Type, error) { return nil, nil }},
		"test_rule_negative": {infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) {
			return []op.Type{{DType: in[0].DType, Shape: shape.Shape{-3}}}, nil
		}},
		"test_rule_huge": {infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) {
			return []op.Type{{DType: in[0].DType, Shape: shape.Shape{1 << 40, 1 << 40}}}, nil
		}},
		"test_rule_untyped":    {infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return []op.Type{{Shape: in[0].Shape}}, nil }},
		"test_gradient_panics": {gradient: func(_ *autograd.Reverse, n graph.Node, dy []graph.Value) []graph.Value { return dy[:len(n.In)+3] }},
		"test_gradient_few":    {gradient: func(*autograd.Reverse, graph.Node, []graph.Value) []graph.Value { return nil }},
		"test_gradient_wild":   {gradient: func(*autograd.Reverse, graph.Node, []graph.Value) []graph.Value { return []graph.Value{4000} }},
		"test_gradient_none":   {gradient: func(*autograd.Reverse, graph.Node, []graph.Value) []graph.Value { return []graph.Value{0} }},
		"test_maker_panics":    {make: func() cpu.Program { panic("oh") }},
		"test_maker_empty":     {make: func() cpu.Program { return cpu.Program{} }},
		"test_maker_negative":  {make: func() cpu.Program { return cpu.Program{Workspace: -1, Run: copied.Run} }},
		"test_reads_beyond": {make: func() cpu.Program {
			return cpu.Program{Run: func(_ *kernel.Pool, l *device.Launch) { copy(cpu.F32(l, 1), cpu.F32(l, 7)) }}
		}},
		"test_worker_panics": {make: func() cpu.Program {
			return cpu.Program{Run: func(p *kernel.Pool, l *device.Launch) { p.Launch(4, panics{}) }}
		}},
		"test_changes_operand": {make: func() cpu.Program {
			return cpu.Program{Run: func(p *kernel.Pool, l *device.Launch) { copied.Run(p, l); cpu.F32(l, 0)[1]++ }}
		}},
		"test_without_a_kernel": {make: func() cpu.Program { return cpu.Program{} }},
	} {
		if b.infer == nil {
			b.infer = like
		}
		if b.gradient == nil {
			b.gradient = same
		}
		op.Register(op.Op{Kind: kind, Takes: 1, Infer: b.infer, Reference: func(_ op.Call, in, out []op.Array, _ op.Args) { copy(out[0].F, in[0].F) }})
		autograd.Register(kind, b.gradient)
		if kind != "test_without_a_kernel" {
			cpu.Register(kind, func(op.Call, int) cpu.Program {
				if b.make == nil {
					return copied
				}
				return b.make()
			})
		}
	}
}

// panics is work whose pieces fail on the pool's goroutines.
type panics struct{}

func (panics) Run(_, piece int) { panic(fmt.Sprint("piece ", piece)) }

// hostile is a model with one of them.
type hostile struct {
	Net
	kind op.Kind
}

func (h *hostile) Blocks() []nn.Block {
	blocks := h.Net.Blocks()
	up := blocks[0].Forward
	blocks[0].Forward = func(b *graph.Builder, in []graph.Value) []graph.Value {
		return b.Apply(h.kind, op.Attr{}, up(b, in)...)
	}
	return blocks
}

// Every one is an error that names it, and another model goes on as if nothing had happened.
func TestHostileOps(t *testing.T) {
	fresh := func() Net { return Net{nn.NewLinear(width, 4*width), nn.NewLinear(4*width, width)} }
	batch := spillway.Batch{"input": spillway.Floats(make([]float32, 2*width), 2, width), "target": spillway.Floats(make([]float32, 2*width), 2, width)}
	for i := range batch["input"].Floats {
		batch["input"].Floats[i], batch["target"].Floats[i] = float32(i%7), float32(i%5)
	}
	good, want := fresh(), []float64{}
	described, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		t.Fatal(err)
	}
	on := spillway.Config{Devices: []string{"cpu:threads=1"}, Options: spillway.Options{Machine: described}}
	tried := []op.Kind{"", "test_panics", "test_overruns", "test_endless", "test_misshapen", "test_misbehaves"}
	for _, kind := range op.Kinds() {
		for _, part := range []string{"rule", "gradient", "maker", "reads", "worker", "changes", "without"} {
			if strings.HasPrefix(string(kind), "test_"+part+"_") {
				tried = append(tried, kind)
			}
		}
	}
	if len(tried) != 6+16 {
		t.Errorf("%d ops: %v", len(tried), tried)
	}
	for _, kind := range tried {
		if kind != "" {
			bad, err := spillway.Wrap(&hostile{fresh(), kind}, on)
			if err == nil {
				_, err = bad.Step(batch)
				bad.Close()
			}
			if err == nil || !strings.Contains(err.Error(), string(kind)) {
				t.Errorf("%s: %v", kind, err)
			}
		}
		net, err := spillway.Wrap(&good, on)
		if err != nil {
			t.Fatal(err)
		}
		loss, err := net.Step(batch)
		if want = append(want, loss); err != nil || loss != want[0] {
			t.Errorf("after %s another model has the loss %v, alone %v (%v)", kind, loss, want[0], err)
		}
		net.Close()
	}
	d := cpu.Open(cpu.Options{Threads: 1})
	defer d.Close()
	for _, c := range op.Cases(dtype.F32) {
		switch c.Call.Kind {
		case "test_misbehaves":
			if err := devicetest.Case(d, c); err == nil || !strings.Contains(err.Error(), "wrote to an operand") {
				t.Errorf("an op that changes its operand: %v", err)
			}
		case "test_doubles", "test_nans": // nothing fails in training, only numbers are wrong
			if err := gradcheck.Case(c, 0, false); err == nil || !strings.Contains(err.Error(), string(c.Call.Kind)) || !strings.Contains(err.Error(), "differences give") {
				t.Errorf("the gradient of %s: %v", c.Call.Kind, err)
			}
		case Clamp:
			if err := gradcheck.Case(c, 0, false); err != nil {
				t.Error(err)
			}
		}
	}
}
