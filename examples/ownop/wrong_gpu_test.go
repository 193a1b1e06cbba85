package main

import (
	"strings"
	"testing"

	"spillway/device/cuda"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/op"
)

// Kernels for GPUs that go wrong: one that is no C++, one whose name is not in its source, launches that no GPU has or that read
// an operand there is not, one that writes past its output, and one that writes to no memory at all.
var badKernels = []struct {
	kind   op.Kind
	source string
	launch func(c op.Call, l *cuda.Launch)
	says   string // part of the error
}{
	{"test_cuda_syntax", `this is no C++`, nil, "error"},
	{"test_cuda_name", `extern "C" __global__ void another(const Element *x, Element *y, i64 n) {}`, nil, "test_cuda_name"},
	{"test_cuda_threads", copying("test_cuda_threads", "i", "0"), func(_ op.Call, l *cuda.Launch) { l.Threads = 5000 }, "test_cuda_threads"},
	{"test_cuda_operand", copying("test_cuda_operand", "i", "0"), func(_ op.Call, l *cuda.Launch) { l.Args[1] = cuda.Buffer(7) }, "test_cuda_operand"},
	{"test_cuda_panics", copying("test_cuda_panics", "i", "0"), func(op.Call, *cuda.Launch) { panic("oh") }, "test_cuda_panics"},
	{"test_cuda_overruns", copying("test_cuda_overruns", "i", "3"), nil, "outside its outputs"},
	{"test_cuda_nowhere", copying("test_cuda_nowhere", "i + (1ll << 44)", "0"), nil, "illegal"}, // last: the GPU's context ends with it
}

// copying is a kernel that copies to a place, and so many elements more than there are.
func copying(name, to, more string) string {
	return `extern "C" __global__ void ` + name + `(const Element *x, Element *y, i64 n) {
    i64 i = position();
    if (i < n + ` + more + `) y[` + to + `] = x[i < n ? i : 0];
}`
}

func init() {
	for _, b := range badKernels {
		op.Register(op.Op{
			Kind: b.kind, Takes: 1,
			Infer:     func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1], nil },
			Reference: func(_ op.Call, in, out []op.Array, _ op.Args) { copy(out[0].F, in[0].F) },
			Cases:     func(l *op.CaseList) { l.Add("3x37", b.kind, op.Attr{}, l.X(3, 37)) },
		})
		cuda.Register(b.kind, b.source, func(c op.Call) cuda.Launch {
			n := c.Out[0].Shape.Elements()
			l := cuda.Launch{Kernel: string(c.Kind), Blocks: 1, Threads: 256, Args: []cuda.Arg{cuda.Buffer(0), cuda.Buffer(1), cuda.Int(n)}}
			if b.launch != nil {
				b.launch(c, &l)
			}
			return l
		})
	}
}

// Every one is an error that names it, and but for the last, which ends the context, the next kernel runs as if nothing had happened.
func TestHostileKernelsOnGPU(t *testing.T) {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		t.Skip("no GPU: ", err)
	}
	defer d.Close()
	cases := map[op.Kind]op.Case{}
	for _, c := range op.Cases(dtype.F32) {
		cases[c.Call.Kind] = c
	}
	for _, b := range badKernels {
		if err := devicetest.Case(d, cases[Clamp]); err != nil {
			t.Fatalf("before %s: %v", b.kind, err)
		}
		err := devicetest.Case(d, cases[b.kind])
		t.Logf("%s: %v", b.kind, err)
		if err == nil || !strings.Contains(err.Error(), b.says) || !strings.Contains(err.Error(), string(b.kind)) {
			t.Errorf("%s: %v", b.kind, err)
		}
	}
	if err := devicetest.Case(d, cases[Clamp]); err == nil {
		t.Error("a GPU goes on whose memory may be anything")
	}
}
