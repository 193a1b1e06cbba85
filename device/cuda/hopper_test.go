package cuda

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// hopperCase is a call for kernels that go over tiles, and how its documents lie.
type hopperCase struct {
	b, t, d   int64
	attr      op.Attr
	documents func(i int) int32 // of a position of a sample
}

// Documents of one length, with padding behind them, out of order, and all of one position.
func documentsOf(length int) func(int) int32 { return func(i int) int32 { return int32(i / length) } }
func paddedFrom(n int) func(int) int32 {
	return func(i int) int32 {
		if i >= n {
			return -1
		}
		return int32(i / 100)
	}
}
func recurring(i int) int32 { return int32(i / 70 % 3) }

// uneven documents: long ones, short ones, and some that end a row after another.
func uneven(i int) int32 {
	n := int32(0)
	for _, end := range []int{1, 2, 40, 60, 61, 189, 317, 318, 420, 448, 576, 700} {
		if i >= end {
			n++
		}
	}
	return n
}

// varied documents are of 1 to 8 positions, of 9 to 136, and of 137 to 264, in no order.
func varied(i int) int32 {
	for n, seed := int32(0), uint64(5); ; n++ {
		seed = op.Key(seed)
		length := int(seed % 8)
		if kind := seed >> 8 % 3; kind > 0 {
			length = int(kind-1)*128 + 8 + int(seed>>16%128)
		}
		if i -= length + 1; i < 0 {
			return n
		}
	}
}

func hopperCases() []hopperCase {
	causal := func(heads, keys int64) op.Attr { return op.Attr{Heads: heads, KVHeads: keys, Causal: true} }
	packed := func(a op.Attr) op.Attr { a.Segments = true; return a }
	window, masked, dropout := packed(causal(2, 2)), packed(causal(4, 2)), packed(causal(2, 1))
	window.Window, masked.KeyMask, dropout.Prob, dropout.Stream = 90, true, 0.2, 3
	wide := causal(2, 2)
	wide.Window = 130
	return []hopperCase{
		{1, 128, 128, causal(1, 1), nil},
		{1, 64, 128, op.Attr{Heads: 1, KVHeads: 1}, nil},
		{2, 500, 128, causal(4, 2), nil},
		{2, 333, 64, packed(causal(4, 4)), documentsOf(333)},
		{1, 300, 64, packed(op.Attr{Heads: 2, KVHeads: 2}), documentsOf(300)},
		{1, 515, 128, wide, nil},
		{2, 750, 128, packed(causal(2, 2)), uneven},
		{2, 750, 80, packed(op.Attr{Heads: 2, KVHeads: 1}), uneven},
		{1, 1500, 128, packed(causal(1, 1)), varied},
		{1, 1200, 80, packed(op.Attr{Heads: 1, KVHeads: 1}), varied},
		{1, 600, 128, window, documentsOf(257)},
		{2, 520, 64, packed(causal(4, 1)), paddedFrom(411)},
		{1, 420, 128, packed(causal(2, 2)), recurring},
		{1, 420, 64, packed(op.Attr{Heads: 2, KVHeads: 2}), recurring},
		{2, 300, 128, masked, documentsOf(170)},
		{1, 200, 80, packed(causal(2, 2)), documentsOf(1)},
		{1, 390, 128, dropout, documentsOf(200)},
		{1, 257, 128, dropout, documentsOf(300)},
		{1, 200, 64, dropout, uneven},
		{2, 430, 96, packed(causal(4, 2)), uneven},
		{1, 300, 256, packed(causal(4, 1)), uneven},
		{1, 300, 256, dropout, documentsOf(130)},
		{2, 150, 160, op.Attr{Heads: 2, KVHeads: 2}, nil},
		{1, 200, 16, packed(causal(2, 2)), documentsOf(70)},
	}
}

// call and its operands; q, k and v are noise.
func (c hopperCase) call(t testing.TB, precision dtype.Type) (op.Call, []op.Array) {
	t.Helper()
	a := c.attr
	a.Scale = 0.125
	rows := func(heads int64) op.Type { return op.Type{DType: precision, Shape: shape.Shape{c.b, c.t, heads * c.d}} }
	in := []op.Type{rows(a.Heads), rows(a.KVHeads), rows(a.KVHeads)}
	for _, has := range []bool{a.Segments, a.KeyMask} {
		if has {
			in = append(in, op.Type{DType: dtype.I32, Shape: shape.Shape{c.b, c.t}})
		}
	}
	call, err := op.Make(op.Attention, a, in...)
	if err != nil {
		t.Fatal(err)
	}
	operands := operandsOf(in)
	for i := range operands {
		for k := range operands[i].I {
			if i == 3 && a.Segments {
				operands[i].I[k] = c.documents(k % int(c.t))
			} else {
				operands[i].I[k] = int32((k + 4) % 7) // every seventh key is hidden
			}
		}
	}
	return call, operands
}

// tiledWay is a way to compute attention by tiles of documents.
type tiledWay struct {
	name             string
	fits             func(h heads) bool
	units            func(h heads) []unit
	forward, grading func(h heads) (program, error)
}

// tiledWays of a GPU: that of its generation, and those of GPUs before it with much and with
// little shared memory.
func tiledWays(d *Device) []tiledWay {
	ways := []tiledWay{{"hopper",
		func(h heads) bool { return h.fitsHopper(d) },
		func(h heads) []unit { return []unit{h.hopperUnit("hopper"), h.hopperUnit("hopperGrad")} },
		func(h heads) (program, error) { return h.forwardHopper(d) },
		func(h heads) (program, error) { return h.gradientHopper(d) }}}
	for _, shared := range []int{163 << 10, 99 << 10} {
		as := &Device{gpu: gpuInfo{shared: shared}}
		ways = append(ways, tiledWay{fmt.Sprintf("ampere with %d KiB", shared>>10),
			func(h heads) bool { return h.fitsAmpere(d) },
			func(h heads) []unit { return []unit{h.ampereForward(as).unit, h.ampereGradient(as).unit} },
			func(h heads) (program, error) { return h.forwardAmpere(d, h.ampereForward(as)) },
			func(h heads) (program, error) { return h.gradientAmpere(d, h.ampereGradient(as)) }})
	}
	return ways
}

// The kernels that go over tiles of documents give what the reference gives, forward and
// backward, and the same bits every time.
func TestTilesAreReference(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	type made struct {
		c, grad  op.Call
		in, do   []op.Array
		out, din []op.Array
	}
	list := make([]made, len(hopperCases()))
	var behind sync.WaitGroup // references and compiling, side by side; errors of the latter come out again below
	for i, c := range hopperCases() {
		m := &list[i]
		precision := dtype.BF16
		if c.d == 64 {
			precision = dtype.F16 // few units: compiling takes most of the time
		}
		m.c, m.in = c.call(t, precision)
		m.grad = gradOf(m.c)
		do := numtest.Random(m.c.In[0], 9)
		do.Round()
		m.do = []op.Array{do}
		behind.Go(func() {
			m.out = reference(t, m.c, m.in)
			m.do = append(append(m.in[:3:3], m.out[0], m.out[1], do), m.in[3:]...)
			m.do[3].Round()
			m.din = reference(t, m.grad, m.do)
		})
		for _, way := range tiledWays(d) {
			if h := headsOf(m.c, 3); way.fits(h) {
				for _, u := range way.units(h) {
					behind.Go(func() { _, _ = d.imageOf(u) })
				}
			}
		}
	}
	behind.Wait()
	for _, way := range tiledWays(d) {
		taken := 0
		for i, m := range list {
			h, back := headsOf(m.c, 3), headsOf(m.grad, 6)
			if !way.fits(h) {
				continue
			}
			taken++
			t.Run(fmt.Sprintf("%s, case %d: %v", way.name, i, m.c), func(t *testing.T) {
				p, err := way.forward(h)
				repeated(t, d, "forward", m.c, m.in, m.out, p, err)
				p, err = way.grading(back)
				repeated(t, d, "gradient", m.grad, m.do, m.din, p, err)
			})
		}
		t.Logf("%s: %d of %d cases", way.name, taken, len(list))
	}
}

// reference computes a call by the op's own definition.
func reference(t testing.TB, c op.Call, in []op.Array) (out []op.Array) {
	for _, typ := range c.Out {
		out = append(out, op.NewArray(typ))
	}
	if err := c.Reference(in, out, op.Args{Key: 7, Row: 2}); err != nil {
		t.Error(err)
	}
	return out
}

// repeated runs a program a few times, which must always give the same bits.
func repeated(t *testing.T, d *Device, what string, c op.Call, in, want []op.Array, p program, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	first := runProgram(t, d, c, p, in)
	sameNumbers(t, what, first, want)
	for range 3 {
		for i, a := range runProgram(t, d, c, p, in) {
			if !slices.Equal(a.F, first[i].F) {
				t.Errorf("%s: output %d has other bits in another run", what, i)
			}
		}
	}
}

// Which calls the kernels take follows from the call and the GPU.
func TestWhatHopperTakes(t *testing.T) {
	d := &Device{gpu: gpuInfo{major: 9, shared: 227 << 10}}
	packed := op.Attr{Heads: 16, KVHeads: 2, Causal: true, Segments: true}
	for _, c := range []struct {
		call  op.Call
		takes bool
	}{
		{attentionCall(t, dtype.BF16, 2, 3000, 128, packed), true},
		{attentionCall(t, dtype.F16, 64, 512, 80, packed), true},
		{attentionCall(t, dtype.F32, 2, 3000, 128, packed), false},
		{attentionCall(t, dtype.BF16, 2, 3000, 256, packed), false},
		{attentionCall(t, dtype.BF16, 2, 3000, 72, packed), false},
		{attentionCall(t, dtype.BF16, 1, 1<<21, 64, packed), false}, // lists do not fit
	} {
		if takes := headsOf(c.call, 3).fitsHopper(d); takes != c.takes {
			t.Errorf("%v: %v", c.call, takes)
		}
	}
	d.gpu.major = 8
	if headsOf(attentionCall(t, dtype.BF16, 2, 3000, 128, packed), 3).fitsHopper(d) {
		t.Error("taken on another generation")
	}
}

// visiblePairs counts pairs of one head, by the definition.
func visiblePairs(c op.Call, ids []int32) (n float64) {
	b, t, s := c.In[0].Shape[0], c.In[0].Shape[1], c.In[1].Shape[1]
	for x := range b * t {
		row := ids[x/t*s : x/t*s+s]
		i := x % t
		first := int64(0)
		if w := c.Attr.Window; w > 0 {
			first = max(0, i-w+1)
		}
		for ; first < i && row[first] != row[i]; first++ { // documents are runs
		}
		n += float64(i - first + 1)
	}
	return n
}

// Attention over packed documents by way of computing it, in visible pairs: 4 operations for
// each element of a head forward, 10 backward.
func BenchmarkDocuments(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	q, err := d.Queue("compute")
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	base := op.Attr{Heads: 16, KVHeads: 16, Causal: true}
	for _, s := range []struct {
		name            string
		rows, length, d int64
		documents       int
		change          func(*op.Attr)
	}{
		{"dense", 2, 3000, 128, 0, func(*op.Attr) {}},
		{"1 document", 2, 3000, 128, 1, func(*op.Attr) {}},
		{"4 documents", 2, 3000, 128, 4, func(*op.Attr) {}},
		{"16 documents", 2, 3000, 128, 16, func(*op.Attr) {}},
		{"64 documents", 2, 3000, 128, 64, func(*op.Attr) {}},
		{"2 key heads, 4 documents", 2, 3000, 128, 4, func(a *op.Attr) { a.KVHeads = 2 }},
		{"heads of 64, dense", 2, 3000, 64, 0, func(a *op.Attr) {}},
		{"heads of 64, 1 document", 2, 3000, 64, 1, func(a *op.Attr) {}},
		{"window 1024", 2, 3000, 128, 1, func(a *op.Attr) { a.Window = 1024 }},
		{"1 × 4096, dense", 1, 4096, 128, 0, func(a *op.Attr) { a.Heads, a.KVHeads = 32, 8 }},
		{"4 × 2048, heads of 64, dense", 4, 2048, 64, 0, func(a *op.Attr) { a.Heads, a.KVHeads = 32, 4 }},
		{"heads of 256, 1 document", 2, 3000, 256, 1, func(a *op.Attr) {}},
		{"dropout", 2, 3000, 128, 1, func(a *op.Attr) { a.Prob = 0.1 }},
	} {
		a := base
		s.change(&a)
		a.Segments = s.documents > 0
		c := attentionCall(b, dtype.BF16, s.rows, s.length, s.d, a)
		ids := make([]int32, s.rows*s.length)
		for i := range ids {
			ids[i] = int32(i % int(s.length) * max(1, s.documents) / int(s.length))
		}
		pairs := visiblePairs(c, ids) * float64(a.Heads*s.d)
		for _, call := range []op.Call{c, gradOf(c)} {
			flops, optional := 4*pairs, 3
			if call.Kind == op.AttentionGrad {
				flops, optional = 10*pairs, 6
			}
			h := headsOf(call, optional)
			ways := map[string]func() (program, error){
				"chosen": func() (program, error) { return d.prepare(call) },
				"flash": func() (program, error) {
					if call.Kind == op.Attention {
						return h.forward(d, h.flash(64))
					}
					return h.gradient(d, h.flash(64))
				},
			}
			names := []string{"chosen", "flash"}
			for _, way := range tiledWays(d) {
				if !way.fits(h) {
					continue
				}
				names = append(names, way.name)
				ways[way.name] = func() (program, error) {
					if call.Kind == op.Attention {
						return way.forward(h)
					}
					return way.grading(h)
				}
			}
			timedBy, free := onNoise(b, d, q, call, ids)
			for _, way := range names {
				if way == "flash" && s.d > 128 {
					continue
				}
				b.Run(fmt.Sprintf("%s/%v/%s", s.name, call.Kind, way), func(b *testing.B) {
					p, err := ways[way]()
					if err != nil {
						b.Fatal(err)
					}
					took := timedBy(p)
					for b.Loop() {
					}
					b.ReportMetric(flops/took.Seconds()/1e12, "TFLOP/s")
					b.ReportMetric(took.Seconds()*1e6, "µs")
					for n := 1; way == "hopper" && n < len(p.actions); n++ {
						b.ReportMetric(timedBy(program{p.workspace, p.actions[:n]}).Seconds()*1e6, fmt.Sprintf("µs-to-%d", n))
					}
				})
			}
			free()
		}
	}
}

// onNoise uploads operands of attention, noise and the integers given, and returns how to time
// programs on them.
func onNoise(b *testing.B, d *Device, q device.Queue, c op.Call, ids []int32) (timedBy func(p program) time.Duration, free func()) {
	b.Helper()
	types := append(c.In[:len(c.In):len(c.In)], c.Out...)
	offsets, size := make([]int64, len(types)), int64(0)
	for i, t := range types {
		offsets[i], size = size, size+aligned(t.Bytes())
	}
	mem, err := d.Alloc(size)
	if err != nil {
		b.Fatal(err)
	}
	if err := upload(d, q, mem, types, offsets, func(i int64) uint32 { return uint32(ids[i%int64(len(ids))]) }); err != nil {
		b.Fatal(err)
	}
	return func(p program) time.Duration {
		work, err := d.Alloc(max(1, p.workspace))
		if err != nil {
			b.Fatal(err)
		}
		defer work.Free()
		l := &device.Launch{Args: &op.Args{}, Workspace: device.Buffer{Memory: work, Bytes: p.workspace}}
		for i, t := range types {
			l.Buffers = append(l.Buffers, device.Buffer{Memory: mem, Offset: offsets[i], Bytes: t.Bytes()})
		}
		k := &preparedKernel{device: d, call: c, program: p}
		return timed(b, d, q, func() error { return q.Launch(k, l) })
	}, func() { mem.Free() }
}
