package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"spillway/device/cuda/driver"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// attendForm is a way for attention of few rows to work, by name.
type attendForm struct {
	name string
	attendTuning
}

// attendForms are those to compare; the first of a cache is how it is without them. Coded caches have stages for tiles that are small.
func attendForms(t dtype.Type) []attendForm {
	if !t.ByRows() {
		return []attendForm{{"turns", plainTuning}, {"16x8", attendTuning{1, 1, 1, 0, 8, 4, false}}, {"16x12", attendTuning{1, 1, 1, 0, 12, 4, false}},
			{"8x4", attendTuning{1, 1, 2, 0, 4, 3, false}}, {"8x8", attendTuning{1, 1, 1, 0, 8, 3, false}}, {"2x4", attendTuning{1, 1, 2, 0, 4, 1, false}}, {"1x8", attendTuning{1, 1, 1, 0, 8, 0, false}}}
	}
	list := []attendForm{{"turns", codedTuning}, {"turns long", longTuning}}
	for _, f := range []struct {
		name                               string
		tiles, stages, blocks, team, split int64
	}{{"turns s2", 1, 2, 2, 4, -1}, {"turns s3", 1, 3, 2, 4, -1}, {"turns t2", 2, 1, 2, 4, -1},
		{"16x8 s2", 1, 2, 1, 8, 4}, {"16x8 s3", 1, 3, 1, 8, 4}, {"16x8 t2", 2, 1, 1, 8, 4}, {"16x8 t2 s2", 2, 2, 1, 8, 4}, {"16x12 s2", 1, 2, 1, 12, 4}, {"16x16 s1", 1, 1, 1, 16, 4},
		{"16x8 s1 b2", 1, 1, 2, 8, 4}, {"16x4 s2", 1, 2, 2, 4, 4}, {"8x4 s2", 1, 2, 2, 4, 3}, {"8x8 s2", 1, 2, 1, 8, 3}, {"2x4 s2", 1, 2, 2, 4, 1}, {"2x4 t2", 2, 1, 2, 4, 1}, {"1x8 s2", 1, 2, 1, 8, 0}, {"1x8 t2", 2, 1, 1, 8, 0}} {
		if f.tiles*f.stages > 3 && t != quant.RowI4 {
			continue // they do not fit
		}
		list = append(list, attendForm{"+" + f.name, attendTuning{f.tiles, f.stages, f.blocks, 128 * f.tiles, f.team, f.split, true}})
	}
	return list
}

// Attention of a row of each of some sequences, the Llama-3-8B shape, one call after the other over caches that are together larger than what the
// GPU keeps, in a graph: µs of a call, and behind it with the kernel in front that stores a position. Forms are BLOCKSxWARPS of a cluster, or blocks
// that take parts in turn; + has scales fetched as codes are.
// Then µs of steps of 32 layers.
func BenchmarkAttendForms(b *testing.B) {
	d := openGPU(b, Options{Cache: b.TempDir()})
	defer d.Close()
	s := newStack(b, d, 32, 32<<30)
	defer func() { d.plainly.attend = nil }()
	base, types := s.used, []dtype.Type{dtype.BF16, quant.RowI8, quant.RowF8, quant.RowI4}
	compileForms(d, types)
	forms := func(t dtype.Type) []attendForm {
		return slices.DeleteFunc(attendForms(t), func(f attendForm) bool {
			if f.split <= 0 {
				return false
			}
			n, _, err := f.clusters(d, t)
			if err == nil && n > 0 {
				return false
			}
			b.Errorf("%v %s: %d clusters at once: %v", t, f.name, n, err)
			return true
		})
	}
	fmt.Printf("pure reads %.0f GB/s\n", s.readRate()/1e9)
	for _, size := range []struct{ rows, context, calls int64 }{{1, 1024, 96}, {1, 4096, 64}, {1, 32768, 16}, {2, 32768, 16}, {4, 32768, 8}, {16, 1024, 32}, {16, 32768, 4}} {
		for _, cache := range types {
			s.used = base
			line := fmt.Sprintf("%2d rows of %5d %-5v", size.rows, size.context, cache)
			for i, f := range forms(cache) {
				clusters := int64(1) << max(f.split, 0)
				if blocks := size.rows * s.kv * clusters; f.split > 0 && (blocks > 2*132 || blocks*f.team > 132*16) || f.split == 0 && size.rows < 16 {
					continue // more than one wave, or few blocks for long
				}
				d.plainly.attend = &f.attendTuning
				s.used = base
				alone := s.attends(size.rows, size.context, size.calls, cache, false)
				s.used = base
				behind := s.attends(size.rows, size.context, size.calls, cache, true)
				if i > 0 && i%4 == 0 {
					line += "\n" + strings.Repeat(" ", 24)
				}
				line += fmt.Sprintf(" | %s %.2f (%.2f)", f.name, alone, behind)
			}
			fmt.Println(line)
		}
	}
	for _, context := range []int64{1024, 32768} {
		for _, cache := range types {
			line := fmt.Sprintf("step at %5d %-5v", context, cache)
			for i, f := range forms(cache) {
				if f.split == 0 {
					continue
				}
				s.used, d.plainly.attend = base, &f.attendTuning
				run := &decodeStep{decodeStack: s, rows: 1, context: context, fused: true, cacheType: cache}
				run.build()
				run.fillScales()
				if i > 0 && i%6 == 0 {
					line += "\n" + strings.Repeat(" ", 19)
				}
				line += fmt.Sprintf(" | %s %.0f", f.name, run.time().Seconds()*1e6)
			}
			fmt.Println(line)
		}
	}
	for b.Loop() {
	}
}

// compileForms compiles all forms, as many at once as there are CPUs.
func compileForms(d *Device, types []dtype.Type) {
	var all sync.WaitGroup
	room := make(chan bool, runtime.GOMAXPROCS(0))
	for _, t := range types {
		for _, f := range attendForms(t) {
			c := cached{Attr: op.Attr{Heads: 32, KVHeads: 8}, element: dtype.BF16, keys: op.Type{DType: t}, values: op.Type{DType: t}, d: 128, own: &f.attendTuning}
			all.Go(func() {
				room <- true
				_, _ = d.imageOf(c.unit())
				<-room
			})
		}
	}
	all.Wait()
}

// attends is what a call takes, in µs: attention of rows alone, or with the kernel that stores what is new.
func (s *decodeStack) attends(rows, context, calls int64, cacheType dtype.Type, stores bool) float64 {
	s.launches = nil
	s.scratch = s.place(s.typ(64 << 20))
	pages := context / 64
	var table, positions, sequences []int32
	for i := range rows {
		positions, sequences = append(positions, int32(context-1)), append(sequences, int32(i))
		for p := range pages {
			table = append(table, int32((p*rows+i)%(rows*pages)))
		}
	}
	tPos, bPos := s.ints(positions, 1, rows)
	tSeq, bSeq := s.ints(sequences, 1, rows)
	tPages, bPages := s.ints(table, rows, pages)
	cache := op.Type{DType: cacheType, Shape: shape.Shape{rows * pages, s.kv, 64, s.size}}
	q, k := s.typ(1, rows, s.heads*s.size), s.typ(1, rows, s.kv*s.size)
	bq, bk, o := s.place(q), s.place(k), s.place(q)
	attn := op.Attr{Heads: s.heads, KVHeads: s.kv, Scale: 0.0884}
	for range calls {
		ck, cv := s.place(cache), s.place(cache)
		if stores {
			s.add(op.CachedAttention, attn, []op.Type{q, k, k, cache, cache, tPos, tSeq, tPages}, bq, bk, bk, ck, cv, bPos, bSeq, bPages, ck, cv, o)
		} else {
			s.add(op.AttendCache, attn, []op.Type{q, cache, cache, tPos, tSeq, tPages}, bq, ck, cv, bPos, bSeq, bPages, o)
		}
	}
	s.fillScales()
	return s.time().Seconds() * 1e6 / float64(calls)
}

// fillScales writes scales as numbers of caches have into those that launches attend to.
func (s *decodeStack) fillScales() {
	for _, l := range s.launches {
		call := l.k.(*preparedKernel).call
		if !call.Kind.ReadsCache() {
			continue
		}
		for i := range 2 {
			at := len(call.In) - 5 + i
			t, b := call.In[at], l.l.Buffers[at]
			if !t.DType.Block() {
				continue
			}
			codes := t.Shape.Elements() / s.size * quant.RowCodeBytes(t.DType, s.size)
			s.do(s.d.within(func() error {
				return s.d.lib.CUDA.Fill(pointer(b)+driver.Pointer(codes), 0x3c, b.Bytes-codes, s.q.(*queue).stream)
			}))
		}
	}
}

// How many clusters of each form are resident at once: a form whose clusters take turns is not worth its name.
func TestAttendClusters(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	if d.gpu.major < 9 {
		t.Skip("clusters are of newer GPUs")
	}
	for _, typ := range []dtype.Type{dtype.BF16, quant.RowI8, quant.RowI4} {
		for _, f := range attendForms(typ) {
			if f.split <= 0 {
				continue
			}
			n, k, err := f.clusters(d, typ)
			if err != nil || n == 0 {
				t.Errorf("%s: %d clusters at once: %v", f.name, n, err)
				continue
			}
			fmt.Printf("%v %s: %d clusters of %d blocks of %d threads and %d KiB at once\n", typ, f.name, n, k.cluster, k.block[0], k.shared>>10)
		}
	}
}

// clusters is how many of a form are resident at once.
func (f attendForm) clusters(d *Device, t dtype.Type) (n int, k *kernelLaunch, err error) {
	c := cached{Attr: op.Attr{Heads: 32, KVHeads: 8}, element: dtype.BF16, keys: op.Type{DType: t, Shape: shape.Of(512, 8, 64, 128)}, values: op.Type{DType: t}, rows: 1, d: 128, own: &f.attendTuning}
	var p program
	if err := c.cluster(d, &p, true); err != nil {
		return 0, nil, err
	}
	k = p.actions[0].(*kernelLaunch)
	err = d.within(func() error {
		n, err = d.lib.CUDA.Clusters(&driver.Launch{Function: k.function.handle, Grid: k.grid, Block: k.block, Shared: k.shared, Cluster: k.cluster})
		return err
	})
	return n, k, err
}

// Forms of attention of few rows compute what the op says, twice the same: those with clusters of each size, and tiles of each.
func TestAttendForms(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	defer func() { d.plainly.attend = nil }()
	if d.gpu.major < 9 {
		t.Skip("clusters are of newer GPUs")
	}
	type try struct {
		c op.Case
		f attendForm
	}
	var tries []try
	var behind sync.WaitGroup
	for _, precision := range []dtype.Type{dtype.BF16, dtype.F16} {
		for _, c := range op.Cases(precision) {
			if c.Call.Kind != op.AttendCache && c.Call.Kind != op.CachedAttention {
				continue
			}
			x := cachedCall(c.Call, len(c.Call.In)-5)
			codes := dtype.BF16
			if x.coded() {
				if codes = x.keys.DType; codes == quant.RowI4 {
					codes = x.values.DType
				}
			}
			for _, f := range attendForms(codes) {
				if wanted := []string{"16x8", "+16x8 s2", "8x4", "1x8", "+8x8 s2", "+1x8 s2", "+16x8 t2", "+turns s2"}; slices.Index(wanted, f.name) < 0 || precision == dtype.F16 && slices.Index(wanted, f.name) > 1 {
					continue
				}
				tries = append(tries, try{c, f})
				x := x
				if x.own = &f.attendTuning; x.onTensorCores() {
					behind.Go(func() { _, _ = d.imageOf(x.unit()) })
				}
			}
		}
	}
	behind.Wait()
	for _, x := range tries {
		d.plainly.attend = &x.f.attendTuning
		if err := devicetest.Case(d, x.c); err != nil {
			t.Errorf("%s, %v: %v", x.f.name, x.c.Call.In[0].DType, err)
		}
	}
	t.Logf("%d tries", len(tries))
}
