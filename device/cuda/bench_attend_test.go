package cuda

import (
	"fmt"
	"slices"
	"testing"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// Attention of a row of each of some sequences, the Llama-3-8B shape, one call after the other over caches that are together larger than what the
// GPU keeps, in a graph: µs of a call in turns and in the form that is chosen, and in brackets with the kernel in front that stores a position.
// Then µs of steps of 32 layers.
func BenchmarkAttendForms(b *testing.B) {
	d := openGPU(b, Options{Cache: b.TempDir()})
	defer d.Close()
	s := newStack(b, d, 32, 32<<30)
	defer func() { d.plainly.attend = nil }()
	base, types := s.used, []dtype.Type{dtype.BF16, quant.RowI8, quant.RowF8, quant.RowI4}
	// turns has calls computed in turns, where they are not so anyway.
	turns := func(cache dtype.Type, context int64) {
		x := cached{keys: op.Type{DType: cache}, values: op.Type{DType: cache}, d: s.size, page: 64, table: context / 64}
		d.plainly.attend = new(attendForm)
		*d.plainly.attend = x.turns()
	}
	fmt.Printf("pure reads %.0f GB/s\n", s.readRate()/1e9)
	for _, rows := range []int64{1, 2, 4, 16} {
		for _, context := range []int64{1024, 4096, 32768} {
			for _, cache := range types {
				measure := func() (alone, behind float64) {
					calls := max(4, min(96, 1<<19/(rows*context)))
					s.used = base
					alone = s.attends(rows, context, calls, cache, false)
					s.used = base
					return alone, s.attends(rows, context, calls, cache, true)
				}
				turns(cache, context)
				alone, behind := measure()
				d.plainly.attend = nil
				chosenAlone, chosenBehind := measure()
				fmt.Printf("%2d rows of %5d %-5v | turns %6.2f (%6.2f) | %-7s %6.2f (%6.2f) | %.2f\n", rows, context, cache, alone, behind, s.formOf(), chosenAlone, chosenBehind, behind/chosenBehind)
			}
		}
	}
	for _, context := range []int64{1024, 4096, 32768} {
		for _, cache := range types {
			measure := func() float64 {
				s.used = base
				run := &decodeStep{decodeStack: s, rows: 1, context: context, fused: true, cacheType: cache}
				run.build()
				run.fillScales()
				return run.time().Seconds() * 1e6
			}
			turns(cache, context)
			before := measure()
			d.plainly.attend = nil
			after := measure()
			fmt.Printf("step at %5d %-5v | turns %.0f | %-7s %.0f | %.3f\n", context, cache, before, s.formOf(), after, before/after)
		}
	}
	for b.Loop() {
	}
}

// formOf is the form of the first attention of the stack.
func (s *decodeStack) formOf() string {
	at := slices.IndexFunc(s.launches, func(l decodeLaunch) bool { return l.k.(*preparedKernel).call.Kind.ReadsCache() })
	return formOf(s.d, s.launches[at].k)
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
