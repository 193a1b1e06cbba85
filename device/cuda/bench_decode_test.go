package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// decodeStack is a model of the Llama-3-8B shape laid out by hand on the GPU, with random weights:
// its kernels one after the other are a step of decoding.
type decodeStack struct {
	t      testing.TB
	d      *Device
	q      device.Queue
	mem    device.Memory
	used   int64
	layers int

	hidden, inner, heads, kv, size, vocab int64
	weights                               []map[string]device.Buffer // of each layer
	norm, head                            device.Buffer

	launches []decodeLaunch
	scratch  device.Buffer
	reads    int64 // bytes of weights and cache that a step reads
}

type decodeLaunch struct {
	k device.Kernel
	l *device.Launch
}

func (s *decodeStack) typ(dims ...int64) op.Type {
	return op.Type{DType: dtype.BF16, Shape: shape.Shape(dims)}
}

func (s *decodeStack) place(t op.Type) device.Buffer {
	b := device.Buffer{Memory: s.mem, Offset: s.used, Bytes: t.Bytes()}
	s.used += aligned(t.Bytes())
	if s.used > s.mem.Size() {
		s.t.Fatalf("%d bytes needed", s.used)
	}
	return b
}

// newStack takes memory and fills it with small random numbers.
func newStack(t testing.TB, d *Device, layers int, size int64) *decodeStack {
	s := &decodeStack{t: t, d: d, layers: layers, hidden: 4096, inner: 14336, heads: 32, kv: 8, size: 128, vocab: 128256}
	var err, bad error
	s.mem, err = d.Alloc(size)
	s.q, bad = d.Queue("compute")
	host, worse := d.HostAlloc(64 << 20)
	if err := errors.Join(err, bad, worse); err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	t.Cleanup(func() { s.q.Close(); s.mem.Free() })
	if err := noise(dtype.BF16)(0, host.Host()); err != nil {
		t.Fatal(err)
	}
	done := int64(64 << 20)
	s.do(s.q.Copy(device.Buffer{Memory: s.mem, Bytes: done}, device.Buffer{Memory: host, Bytes: done}))
	for ; done < size; done *= 2 {
		n := min(done, size-done)
		s.do(s.q.Copy(device.Buffer{Memory: s.mem, Offset: done, Bytes: n}, device.Buffer{Memory: s.mem, Bytes: n}))
	}
	s.do(s.q.Sync())
	for range layers {
		w := map[string]device.Buffer{}
		for _, m := range []struct {
			name       string
			rows, cols int64
		}{{"norm1", 1, s.hidden}, {"q", s.heads * s.size, s.hidden}, {"k", s.kv * s.size, s.hidden}, {"v", s.kv * s.size, s.hidden}, {"o", s.hidden, s.heads * s.size},
			{"norm2", 1, s.hidden}, {"gate", s.inner, s.hidden}, {"up", s.inner, s.hidden}, {"down", s.hidden, s.inner}} {
			w[m.name] = s.place(s.typ(m.rows, m.cols))
		}
		s.weights = append(s.weights, w)
	}
	s.norm, s.head = s.place(s.typ(s.hidden)), s.place(s.typ(s.vocab, s.hidden))
	return s
}

func (s *decodeStack) do(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// ints places 32-bit integers on the GPU.
func (s *decodeStack) ints(list []int32, dims ...int64) (op.Type, device.Buffer) {
	t := op.Type{DType: dtype.I32, Shape: shape.Shape(dims)}
	b, host := s.place(t), []byte{}
	for _, n := range list {
		host = binary.LittleEndian.AppendUint32(host, uint32(n))
	}
	s.put(b, host)
	return t, b
}

func (s *decodeStack) put(b device.Buffer, bytes []byte) {
	m, err := s.d.HostAlloc(int64(len(bytes)))
	s.do(err)
	copy(m.Host(), bytes)
	s.do(s.q.Copy(b, device.Buffer{Memory: m, Bytes: b.Bytes}), s.q.Sync(), m.Free())
}

func (s *decodeStack) get(b device.Buffer) []byte {
	m, err := s.d.HostAlloc(b.Bytes)
	s.do(err)
	s.do(s.q.Copy(device.Buffer{Memory: m, Bytes: b.Bytes}, b), s.q.Sync())
	out := bytes.Clone(m.Host()[:b.Bytes])
	s.do(m.Free())
	return out
}

// add appends a call.
func (s *decodeStack) add(kind op.Kind, a op.Attr, types []op.Type, buffers ...device.Buffer) {
	s.t.Helper()
	c, err := op.Make(kind, a, types...)
	s.do(err)
	k, err := s.d.Kernel(c)
	s.do(err)
	if w := k.Workspace(); w > s.scratch.Bytes {
		s.t.Fatalf("%v needs %d bytes of scratch memory", c, w)
	}
	l := &device.Launch{Buffers: buffers, Args: &op.Args{}}
	if k.Workspace() > 0 {
		l.Workspace = device.Buffer{Memory: s.mem, Offset: s.scratch.Offset, Bytes: k.Workspace()}
	}
	s.launches = append(s.launches, decodeLaunch{k, l})
}

// time is the median time of one run of all launches, captured as a graph.
func (s *decodeStack) time() time.Duration {
	s.t.Helper()
	g, err := s.d.Capture([]device.Queue{s.q}, func() error {
		for _, l := range s.launches {
			if err := s.q.Launch(l.k, l.l); err != nil {
				return err
			}
		}
		return nil
	})
	s.do(err)
	defer g.Close()
	from, _ := s.d.Event()
	to, _ := s.d.Event()
	var list []time.Duration
	for i := range 12 {
		s.do(s.q.Record(from), g.Launch(), s.q.Record(to), s.q.Sync())
		if i >= 2 {
			list = append(list, to.Time()-from.Time())
		}
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// decodeStep lays out a step of R rows, each of a sequence with so many positions.
type decodeStep struct {
	*decodeStack
	rows, context int64
	fused, exact  bool
	cacheType     dtype.Type
	logits        device.Buffer
}

func (s *decodeStep) build() {
	if s.cacheType == dtype.Invalid {
		s.cacheType = dtype.BF16
	}
	s.launches, s.reads = nil, 0
	s.scratch = s.place(s.typ(128 << 20))
	r, w := s.rows, s.hidden
	pages := s.context / 64
	var table, positions, sequences []int32
	for i := range r {
		positions, sequences = append(positions, int32(s.context-1)), append(sequences, int32(i))
		for p := range pages {
			table = append(table, int32((p*r+i)%(r*pages)))
		}
	}
	tPos, bPos := s.ints(positions, 1, r)
	tSeq, bSeq := s.ints(sequences, 1, r)
	tPages, bPages := s.ints(table, r, pages)
	freq := op.Type{DType: dtype.F32, Shape: shape.Of(64)}
	bFreq := s.place(freq)
	cache := op.Type{DType: s.cacheType, Shape: shape.Shape{r * pages, s.kv, 64, s.size}}
	x, y := s.place(s.typ(r, w)), s.place(s.typ(r, w))
	x0 := x
	normed, q, k, v, o, gate, up, act := s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, s.inner)), s.place(s.typ(r, s.inner)), s.place(s.typ(r, s.inner))
	s.logits = s.place(s.typ(r, s.vocab))
	s.add(op.Scale, op.Attr{Scale: 1}, []op.Type{s.typ(1, r, w)}, x0, y) // so that every step begins alike
	x, y = y, s.place(s.typ(r, w))
	z := s.place(s.typ(r, w))
	hd, kd := s.heads*s.size, s.kv*s.size
	for _, m := range s.weights {
		ck, cv := s.place(cache), s.place(cache)
		attn := op.Attr{Heads: s.heads, KVHeads: s.kv, Scale: 0.0884, Exact: s.exact}
		norm := op.Attr{Eps: 1e-5}
		line := op.Attr{TransB: true, Constant: true, Exact: s.exact}
		plus := line
		plus.Plus = true
		heads := attn
		heads.Scale, heads.Eps = 1, 1e-5
		if s.fused {
			s.add(op.NormHeads, heads, []op.Type{s.typ(1, r, w), s.typ(w), s.typ(hd, w), s.typ(kd, w), s.typ(kd, w), freq, cache, cache, tPos, tSeq, tPages},
				x, m["norm1"], m["q"], m["k"], m["v"], bFreq, ck, cv, bPos, bSeq, bPages, ck, cv, q)
			s.add(op.AttendCache, attn, []op.Type{s.typ(1, r, hd), cache, cache, tPos, tSeq, tPages}, q, ck, cv, bPos, bSeq, bPages, o)
		} else {
			s.add(op.RMSNorm, norm, []op.Type{s.typ(1, r, w), s.typ(w)}, x, m["norm1"], normed)
			for _, n := range []struct {
				w    string
				rows int64
				out  device.Buffer
			}{{"q", hd, gate}, {"k", kd, up}, {"v", kd, v}} {
				out := n.out
				out.Bytes = 2 * r * n.rows
				s.add(op.MatMul, line, []op.Type{s.typ(1, r, w), s.typ(n.rows, w)}, normed, m[n.w], out)
			}
			cut := func(b device.Buffer, n int64) device.Buffer { b.Bytes = 2 * r * n; return b }
			s.add(op.Rope, op.Attr{Heads: s.heads}, []op.Type{s.typ(1, r, hd), tPos, freq}, cut(gate, hd), bPos, bFreq, q)
			s.add(op.Rope, op.Attr{Heads: s.kv}, []op.Type{s.typ(1, r, kd), tPos, freq}, cut(up, kd), bPos, bFreq, cut(k, kd))
			s.add(op.CachedAttention, attn, []op.Type{s.typ(1, r, hd), s.typ(1, r, kd), s.typ(1, r, kd), cache, cache, tPos, tSeq, tPages},
				q, cut(k, kd), cut(v, kd), ck, cv, bPos, bSeq, bPages, ck, cv, o)
		}
		s.add(op.MatMul, plus, []op.Type{s.typ(1, r, hd), s.typ(w, hd), s.typ(1, r, w)}, o, m["o"], x, y)
		if s.fused {
			s.add(op.NormGated, op.Attr{Eps: 1e-5, Func: op.SiLU, Exact: s.exact}, []op.Type{s.typ(1, r, w), s.typ(w), s.typ(s.inner, w), s.typ(s.inner, w)}, y, m["norm2"], m["gate"], m["up"], act)
		} else {
			s.add(op.RMSNorm, norm, []op.Type{s.typ(1, r, w), s.typ(w)}, y, m["norm2"], normed)
			s.add(op.MatMul, line, []op.Type{s.typ(1, r, w), s.typ(s.inner, w)}, normed, m["gate"], gate)
			s.add(op.MatMul, line, []op.Type{s.typ(1, r, w), s.typ(s.inner, w)}, normed, m["up"], up)
			s.add(op.Gated, op.Attr{Func: op.SiLU}, []op.Type{s.typ(1, r, s.inner), s.typ(1, r, s.inner)}, gate, up, act)
		}
		s.add(op.MatMul, plus, []op.Type{s.typ(1, r, s.inner), s.typ(w, s.inner), s.typ(1, r, w)}, act, m["down"], y, z)
		x, z = z, x
		s.reads += 2*(hd*w+2*kd*w+w*hd+3*w*s.inner) + 2*r*s.context*(op.Type{DType: s.cacheType, Shape: shape.Of(int(s.kv), int(s.size))}).Bytes()
	}
	s.add(op.RMSNorm, op.Attr{Eps: 1e-5}, []op.Type{s.typ(1, r, w), s.typ(w)}, x, s.norm, normed)
	s.add(op.MatMul, op.Attr{TransB: true, Constant: true, Exact: s.exact}, []op.Type{s.typ(1, r, w), s.typ(s.vocab, w)}, normed, s.head, s.logits)
	s.reads += 2 * s.vocab * w
}

const readSource = `
extern "C" __global__ void __launch_bounds__(512) readAll(const uint4 *x, u32 *y, i64 n) {
    u32 sum = 0;
    i64 step = (i64)gridDim.x * 512;
    i64 i = (i64)blockIdx.x * 512 + threadIdx.x;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = __ldcs(x + i + k * step);
#pragma unroll
        for (int k = 0; k < 8; k++) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (sum == 12345) *y = sum;
}`

// readRate is what the GPU reads per second: sums over many gigabytes.
func (s *decodeStack) readRate() float64 {
	best := 0.0
	const size = 8 << 30
	for _, blocks := range []int64{132 * 2, 132 * 4} {
		k, err := s.d.line(unit{file: "readAll", text: readSource, element: dtype.BF16}, "readAll", blocks, 512, buffer(0), buffer(1), i64(size/16))
		s.do(err)
		l := &device.Launch{Buffers: []device.Buffer{{Memory: s.mem, Bytes: size}, {Memory: s.mem, Bytes: 4}}}
		from, _ := s.d.Event()
		to, _ := s.d.Event()
		for range 6 {
			s.do(s.q.Record(from))
			q := s.q.(*queue)
			s.do(s.d.within(func() error { return k.run(q, l) }))
			s.do(s.q.Record(to), s.q.Sync())
			best = max(best, size/(to.Time()-from.Time()).Seconds())
		}
	}
	return best
}

// Fused ops, early launches and the copy engine change when things happen, and nothing else:
// logits of a step have the same bits, as a captured graph too.
func TestStepsAgree(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	s := newStack(t, d, 2, 4<<30)
	base := s.used
	var want []byte
	for _, c := range []struct {
		name                    string
		launches, copies, fused bool
	}{{"as it is", false, false, true}, {"again", false, false, true}, {"no early launches", true, false, true}, {"no copy engine", false, true, true}, {"plain ops", false, false, false}} {
		d.plainly.launches, d.plainly.copies = c.launches, c.copies
		s.used = base
		run := &decodeStep{decodeStack: s, rows: 3, context: 1024, fused: c.fused}
		run.build()
		run.time()
		got := run.get(run.logits)
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other logits", c.name)
		}
	}
}

// A step of decoding of the Llama-3-8B shape, captured: tokens a second, and the share of
// what the GPU reads in the same run that reading weights and cache once is.
func BenchmarkDecode(b *testing.B) {
	d := openGPU(b, Options{Cache: b.TempDir()}) // so that algorithms are chosen by their time
	defer d.Close()
	s := newStack(b, d, 32, 92<<30) // caches of 16 long sequences take 64 of it
	rate, base := s.readRate(), s.used
	for _, c := range []struct {
		rows, context int64
		how           string
		cache         dtype.Type
	}{{1, 1024, "fused", dtype.BF16}, {1, 1024, "exact", dtype.BF16}, {8, 1024, "fused", dtype.BF16}, {16, 1024, "fused", dtype.BF16}, {16, 1024, "cuBLASLt", dtype.BF16}, {16, 1024, "exact", dtype.BF16}, {128, 1024, "fused", dtype.BF16}, {128, 1024, "exact", dtype.BF16},
		{1, 32768, "fused", dtype.BF16}, {1, 32768, "fused", quant.RowI8}, {1, 32768, "fused", quant.RowF8}, {1, 32768, "fused", quant.RowI4},
		{16, 32768, "fused", dtype.BF16}, {16, 32768, "fused", quant.RowI8}} {
		b.Run(fmt.Sprintf("%d rows context %d %s %v", c.rows, c.context, c.how, c.cache), func(b *testing.B) {
			s.used, d.plainly.thick = base, c.how == "cuBLASLt"
			run := &decodeStep{decodeStack: s, rows: c.rows, context: c.context, fused: c.how != "plain", exact: c.how == "exact", cacheType: c.cache}
			run.build()
			var took time.Duration
			for b.Loop() {
				took = run.time()
			}
			b.ReportMetric(float64(c.rows)/took.Seconds(), "tok/s")
			b.ReportMetric(float64(run.reads)/rate/took.Seconds(), "of-reads")
			run.table(rate)
			run.only(op.AttendCache, op.CachedAttention)
			b.ReportMetric(float64(run.costs())/rate/run.time().Seconds(), "attention-of-reads")
		})
	}
	fmt.Printf("pure reads %.0f GB/s\n", rate/1e9)
}

// only leaves launches of some kinds.
func (s *decodeStack) only(kinds ...op.Kind) {
	s.launches = slices.DeleteFunc(s.launches, func(l decodeLaunch) bool { return !slices.Contains(kinds, l.k.(*preparedKernel).call.Kind) })
}

// table writes down what each kind of call takes in a step, by itself and without pauses
// between kinds.
func (s *decodeStack) table(rate float64) {
	all, names := s.launches, []string{}
	by := map[string][]decodeLaunch{}
	for _, l := range all {
		c := l.k.(*preparedKernel).call
		name := fmt.Sprintf("%s %v", c.Kind, c.In[min(1, len(c.In)-1)].Shape)
		if by[name] == nil {
			names = append(names, name)
		}
		by[name] = append(by[name], l)
	}
	s.launches = all
	whole := s.time()
	var sum time.Duration
	for _, name := range names {
		s.launches = by[name]
		took, bytes := s.time(), s.costs()
		sum += took
		n := time.Duration(len(by[name]))
		fmt.Printf("%-40s %4d × %6.1f µs = %7.0f µs, %5.1f%% of reads\n", name, n, float64(took/n)/1e3, float64(took)/1e3, 100*float64(bytes)/rate/took.Seconds())
	}
	s.launches = all
	fmt.Printf("together %.0f µs, as a step %.0f µs\n", float64(sum)/1e3, float64(whole)/1e3)
}

// costs is how many bytes the launches move.
func (s *decodeStack) costs() (n int64) {
	for _, l := range s.launches {
		n += l.k.(*preparedKernel).call.Cost().Bytes
	}
	return n
}

// Matmuls of tens to thousands of rows of the Llama-3-8B shape: by cuBLASLt, and exact ones by tiles of each shape.
func BenchmarkManyRows(b *testing.B) {
	d := openGPU(b, Options{Cache: b.TempDir()})
	defer d.Close()
	s := newStack(b, d, 0, 8<<30)
	base := s.used
	for _, rows := range []int64{16, 32, 128, 512, 2048} {
		for _, size := range [][2]int64{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}} {
			n, k := size[0], size[1]
			if rows > 256 && n > 100000 {
				continue
			}
			line := fmt.Sprintf("%5d × %6d × %5d:", rows, n, k)
			for form := -1; form <= len(tileForms); form++ {
				if form > 0 && !tileForms[form-1].fits(rows, k) || form == 0 && rows <= fewestRows {
					continue
				}
				s.used, s.launches, d.plainly.tile = base, nil, max(form, 0)
				s.scratch = s.place(s.typ(64 << 20))
				x, y := s.place(s.typ(1, rows, k)), s.place(s.typ(1, rows, n))
				for range max(1, min(8, 1500000000/(n*k))) {
					s.add(op.MatMul, op.Attr{TransB: true, Constant: form >= 0, Exact: form >= 0}, []op.Type{s.typ(1, rows, k), s.typ(n, k)}, x, s.place(s.typ(n, k)), y)
				}
				took, name := s.time().Seconds()/float64(len(s.launches)), "cuBLASLt"
				if form >= 0 {
					name = "chosen"
				}
				if form > 0 {
					name = strings.TrimPrefix(tileForms[form-1].name(), "matmulTiles")
				}
				line += fmt.Sprintf("  %s %.1f µs", name, took*1e6)
				if form < 0 {
					line += fmt.Sprintf(" %.0f GB/s %.0f TFLOP/s", 2*float64(n*k)/took/1e9, 2*float64(rows*n*k)/took/1e12)
				}
			}
			d.plainly.tile = 0
			fmt.Println(line)
		}
	}
}

// A chunk of a prompt over what is in the cache of it.
func BenchmarkPrefillAttention(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	s := newStack(b, d, 0, 4<<30)
	s.scratch = s.place(s.typ(64 << 20))
	const rows, context = 2048, 4096
	var positions, sequences, table []int32
	for i := range rows {
		positions, sequences = append(positions, int32(context-rows+i)), append(sequences, 0)
	}
	for i := range context / 64 {
		table = append(table, int32(i))
	}
	tPos, bPos := s.ints(positions, 1, rows)
	tSeq, bSeq := s.ints(sequences, 1, rows)
	tPages, bPages := s.ints(table, 1, context/64)
	cache := s.typ(context/64, 8, 64, 128)
	q, k := s.typ(1, rows, 4096), s.typ(1, rows, 1024)
	ck, cv := s.place(cache), s.place(cache)
	s.add(op.CachedAttention, op.Attr{Heads: 32, KVHeads: 8, Scale: 0.0884}, []op.Type{q, k, k, cache, cache, tPos, tSeq, tPages},
		s.place(q), s.place(k), s.place(k), ck, cv, bPos, bSeq, bPages, ck, cv, s.place(q))
	var took time.Duration
	for b.Loop() {
		took = s.time()
	}
	b.ReportMetric(4*4096*float64(rows)*(context-rows/2)/took.Seconds()/1e12, "TFLOP/s")
}
