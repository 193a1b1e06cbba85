package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// attentionCall is a call of attention of t queries and as many keys.
func attentionCall(t testing.TB, precision dtype.Type, b, n, d int64, a op.Attr) op.Call {
	t.Helper()
	typ := func(heads int64) op.Type { return op.Type{DType: precision, Shape: shape.Shape{b, n, heads * d}} }
	a.Scale = 0.125
	in := []op.Type{typ(a.Heads), typ(a.KVHeads), typ(a.KVHeads)}
	if a.Segments {
		in = append(in, op.Type{DType: dtype.I32, Shape: shape.Shape{b, n}})
	}
	c, err := op.Make(op.Attention, a, in...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gradOf is the gradient of a call of attention.
func gradOf(c op.Call) op.Call {
	return op.Call{Kind: op.AttentionGrad, Attr: c.Attr, In: append([]op.Type{c.In[0], c.In[1], c.In[2], c.Out[0], c.Out[1], c.In[0]}, c.In[3:]...), Out: c.In[:3:3]}
}

// What cuDNN is not asked for: other GPUs, other precision, little work, windows,
// documents, and what our kernels for Hopper are faster at. The call alone decides.
func TestWhatTheLibraryTakes(t *testing.T) {
	d, _ := graphs(t)
	llama := op.Attr{Heads: 32, KVHeads: 8, Causal: true}
	window, wide, documents := llama, llama, llama
	window.Window, wide.Window, documents.Segments = 1024, 4096, true
	for _, c := range []struct {
		what  string
		call  op.Call
		byDNN bool
	}{
		{"a large call", attentionCall(t, dtype.BF16, 1, 4096, 64, llama), true},
		{"heads for which ours is faster", attentionCall(t, dtype.BF16, 1, 4096, 128, llama), false},
		{"the same that see all keys", attentionCall(t, dtype.BF16, 1, 4096, 128, op.Attr{Heads: 32, KVHeads: 8}), true},
		{"in f16", attentionCall(t, dtype.F16, 4, 2048, 64, llama), true},
		{"in f32", attentionCall(t, dtype.F32, 1, 4096, 128, llama), false},
		{"a small call", attentionCall(t, dtype.BF16, 1, 128, 128, llama), false},
		{"wide heads", attentionCall(t, dtype.BF16, 1, 4096, 256, llama), false},
		{"a window", attentionCall(t, dtype.BF16, 1, 4096, 128, window), false},
		{"a window that sees everything", attentionCall(t, dtype.BF16, 1, 4096, 64, wide), true},
		{"documents", attentionCall(t, dtype.BF16, 1, 4096, 128, documents), false},
	} {
		p, err := d.prepare(c.call)
		if err != nil {
			t.Fatal(err)
		}
		if _, by := p.actions[0].(*graphRun); by != c.byDNN {
			t.Errorf("%s: by cuDNN: %v", c.what, by)
		}
	}
	for width, byDNN := range map[int64]bool{128: false, 120: true} { // our kernels take multiples of 16
		p, err := d.prepare(gradOf(attentionCall(t, dtype.BF16, 1, 4096, width, llama)))
		if err != nil {
			t.Fatal(err)
		}
		if _, by := p.actions[0].(*graphRun); by != byDNN {
			t.Errorf("gradient of heads of %d by cuDNN: %v", width, by)
		}
	}
	large := headsOf(attentionCall(t, dtype.BF16, 1, 4096, 128, llama), 3)
	d.lib.DNN.Version = 90800
	if large.fitsDNN(d) {
		t.Error("taken by a library that is too old")
	}
	d.lib.DNN.Version = 91900
	other := &Device{lib: d.lib, gpu: d.gpu}
	other.gpu.major = 8
	if large.fitsDNN(other) {
		t.Error("taken on a GPU that was not tried")
	}
}

// Slices of the backward pass divide the call and keep to the bound.
func TestSlices(t *testing.T) {
	for _, c := range []struct {
		b, n, heads, keys int64
		want              slice
		ok                bool
	}{
		{1, 4096, 32, 8, slice{1, 4}, true},   // 1 GiB in halves
		{4, 2048, 32, 4, slice{2, 4}, true},   // 256 MiB each sample
		{3, 2048, 32, 4, slice{1, 4}, true},   // two do not divide three
		{2, 512, 32, 8, slice{2, 8}, true},    // small: all at once
		{1, 8192, 24, 8, slice{1, 1}, true},   // 384 MiB each key head
		{1, 16384, 32, 8, slice{0, 0}, false}, // 2 GiB each key head
	} {
		h := headsOf(gradOf(attentionCall(t, dtype.BF16, c.b, c.n, 128, op.Attr{Heads: c.heads, KVHeads: c.keys, Causal: true})), 6)
		s, ok := h.slices()
		if s != c.want || ok != c.ok {
			t.Errorf("%d × %d, %d heads of %d: %v %v, want %v %v", c.b, c.n, c.heads, c.keys, s, ok, c.want, c.ok)
		}
	}
}

// A graph cuDNN has no engine for is computed by our kernels; another answer is an error
// of the call.
func TestLibraryThatRefuses(t *testing.T) {
	d, _ := graphs(t)
	c := attentionCall(t, dtype.BF16, 1, 4096, 64, op.Attr{Heads: 32, KVHeads: 8, Causal: true})
	var answer error = &driver.UnsupportedError{Tried: 2, Cause: errMadeUp}
	d.lib.DNN.Prepare = func(driver.DNNHandle, *driver.DNNGraph) (*driver.GraphPlan, error) { return nil, answer }
	for _, call := range []op.Call{c, gradOf(c)} {
		p, err := d.prepare(call)
		if err != nil {
			t.Fatal(err)
		}
		if _, ours := p.actions[0].(*kernelLaunch); !ours {
			t.Errorf("%v: not our kernel", call.Kind)
		}
	}
	answer = errMadeUp
	if _, err := d.prepare(c); !errors.Is(err, errMadeUp) {
		t.Errorf("got %v", err)
	}
}

// A run passes the addresses of a slice, and tells the stream when it changes.
func TestLibraryRun(t *testing.T) {
	r := newRig(t, Options{})
	r.d.lib.DNN = r.fake.dnn()
	var given [][]driver.Pointer
	r.d.lib.DNN.Run = func(_ driver.DNNHandle, _ *driver.GraphPlan, at []driver.Pointer, workspace driver.Pointer) error {
		given = append(given, append(slices.Clone(at), workspace))
		return r.call("RunGraph")
	}
	h := headsOf(gradOf(attentionCall(t, dtype.BF16, 2, 16, 8, op.Attr{Heads: 4, KVHeads: 2, Causal: true})), 6)
	p, err := h.gradientGraph(r.d, slice{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	l := &device.Launch{Workspace: device.Buffer{Memory: r.gpu}}
	for i := range 9 {
		l.Buffers = append(l.Buffers, device.Buffer{Memory: r.gpu, Offset: int64(i) << 16})
	}
	for _, s := range p.actions {
		if err := s.run(r.q.(*queue), l); err != nil {
			t.Fatal(err)
		}
	}
	// The last slice is of sample 1 and key head 1: a sample on and half a row of heads
	// on; the sums of a sample lie head by head.
	const query, key, lse = 16*4*8*2 + 2*8*2, 16*2*8*2 + 8*2, 4*16*4 + 2*16*4
	base := driver.Pointer(r.gpu.(*memory).at)
	for i, on := range []driver.Pointer{query, key, key, query, lse, query} {
		if got, want := given[3][i], base+driver.Pointer(i)<<16+on; got != want {
			t.Errorf("operand %d of the last slice at %x, want %x", i, got, want)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(r.log), func(s string) bool { return s != "SetStream" })); n != 1 {
		t.Errorf("the stream was set %d times in %d runs", n, len(p.actions))
	}
	if given[0][6] == given[0][10] || given[0][10] != base {
		t.Errorf("sums at %x, scratch memory at %x", given[0][6], given[0][10])
	}
}

// On a GPU with cuDNN: its attention is the flash kernel's and the reference's, and it
// gives the same bits every time.
func TestLibraryIsFlash(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	if d.lib.DNN == nil {
		t.Skip("cuDNN is not installed")
	}
	t.Logf("cuDNN %d", d.lib.DNN.Version)
	for _, c := range []struct {
		precision dtype.Type
		b, n, d   int64
		attr      op.Attr
		slice     slice
	}{
		{dtype.BF16, 2, 200, 64, op.Attr{Heads: 4, KVHeads: 2, Causal: true}, slice{2, 2}},
		{dtype.BF16, 2, 200, 64, op.Attr{Heads: 4, KVHeads: 2, Causal: true}, slice{1, 1}},
		{dtype.BF16, 1, 256, 128, op.Attr{Heads: 4, KVHeads: 4, Causal: true}, slice{1, 2}},
		{dtype.F16, 1, 384, 128, op.Attr{Heads: 4, KVHeads: 1}, slice{1, 1}},
		{dtype.F16, 3, 130, 32, op.Attr{Heads: 2, KVHeads: 2, Causal: true}, slice{3, 2}},
	} {
		call := attentionCall(t, c.precision, c.b, c.n, c.d, c.attr)
		t.Run(fmt.Sprintf("%v slices of %v", call, c.slice), func(t *testing.T) {
			in, h := operandsOf(call.In), headsOf(call, 3)
			compare := func(call op.Call, in []op.Array, graph, flash program) []op.Array {
				first := runProgram(t, d, call, graph, in)
				want := make([]op.Array, len(call.Out))
				for i, typ := range call.Out {
					want[i] = op.NewArray(typ)
				}
				if err := call.Reference(in, want, op.Args{}); err != nil {
					t.Fatal(err)
				}
				sameNumbers(t, "cuDNN by the reference", first, want)
				sameNumbers(t, "cuDNN by flash", first, runProgram(t, d, call, flash, in))
				for range 5 {
					for i, a := range runProgram(t, d, call, graph, in) {
						if !slices.Equal(a.F, first[i].F) {
							t.Errorf("output %d has other bits in another run", i)
						}
					}
				}
				return first
			}
			both := func(graph, flash program, errs ...error) (program, program) {
				t.Helper()
				if err := errors.Join(errs...); err != nil || len(graph.actions) == 0 {
					t.Fatalf("%d steps, %v", len(graph.actions), err)
				}
				return graph, flash
			}
			graph, err := h.forwardGraph(d)
			flash, late := h.forward(d, h.flash(64))
			graph, flash = both(graph, flash, err, late)
			out := compare(call, in, graph, flash)

			grad := gradOf(call)
			h = headsOf(grad, 6)
			graph, err = h.gradientGraph(d, c.slice)
			flash, late = h.gradient(d, h.flash(64))
			graph, flash = both(graph, flash, err, late)
			do := numtest.Random(grad.In[5], 9)
			do.Round()
			compare(grad, []op.Array{in[0], in[1], in[2], out[0], out[1], do}, graph, flash)
		})
	}
}

// What cuDNN takes of the GPU it takes when a kernel is asked for, so that plans know.
func TestLibraryTakesItsMemoryEarly(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	if d.lib.DNN == nil {
		t.Skip("cuDNN is not installed")
	}
	c := attentionCall(t, dtype.BF16, 1, 1024, 64, op.Attr{Heads: 16, KVHeads: 4, Causal: true})
	grad := gradOf(c)
	in := operandsOf(c.In)
	small := attentionCall(t, dtype.BF16, 1, 64, 64, op.Attr{Heads: 2, KVHeads: 2})
	plain, err := headsOf(small, 3).forward(d, headsOf(small, 3).flash(64))
	if err != nil {
		t.Fatal(err)
	}
	runProgram(t, d, small, plain, operandsOf(small.In)) // queues and the rest of the driver
	start := freeOn(t, d)
	forward, err := d.prepare(c)
	backward, late := d.prepare(grad)
	if err := errors.Join(err, late); err != nil {
		t.Fatal(err)
	}
	asked := freeOn(t, d)
	out := runProgram(t, d, c, forward, in)
	runProgram(t, d, grad, backward, []op.Array{in[0], in[1], in[2], out[0], out[1], in[0]})
	ran := freeOn(t, d)
	t.Logf("%d KiB when asked for, %d KiB more when run", (start-asked)>>10, (asked-ran)>>10)
	if ran < asked {
		t.Errorf("%d bytes were taken by the first runs", asked-ran)
	}
}
