package cuda

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// packedModel is in which formats the weights of a model are: those of a layer, and of the head.
type packedModel struct {
	name  string
	layer func(i int, matrix string) dtype.Type
	head  dtype.Type
}

// uniform has all layers in one format, and the head in another.
func uniform(t, head dtype.Type) packedModel {
	return packedModel{t.String() + "+" + head.String(), func(int, string) dtype.Type { return t }, head}
}

// mixedK is what llama.cpp calls Q4_K_M, of 32 layers.
var mixedK = packedModel{"q4_k_m", func(i int, matrix string) dtype.Type {
	if more := i < 4 || i >= 28 || (i-4)%3 == 2; more && (matrix == "v" || matrix == "down") {
		return quant.Q6_K
	}
	return quant.Q4_K
}, quant.Q6_K}

// packedModels are those that are measured.
var packedModels = []packedModel{mixedK, uniform(quant.NF4, dtype.BF16), uniform(quant.NF4, quant.NF4), uniform(quant.RowF8, quant.RowF8), uniform(quant.RowI8, quant.RowI8), uniform(quant.Q8_0, quant.Q8_0), uniform(quant.Q4_0, quant.Q6_K)}

// buildPacked lays out a step of rows with packed weights.
func (s *decodeStep) buildPacked(m packedModel, layers int) {
	s.launches, s.reads = nil, 0
	s.scratch = s.place(s.typ(16 << 20))
	r, w, pages := s.rows, s.hidden, s.context/64
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
	bFreq, cache := s.place(freq), s.typ(r*pages, s.kv, 64, s.size)
	weight := func(t dtype.Type, rows, cols int64) (op.Type, device.Buffer) {
		typ := op.Type{DType: t, Shape: shape.Shape{rows, cols}}
		s.reads += typ.Bytes()
		return typ, s.place(typ)
	}
	hd, kd := s.heads*s.size, s.kv*s.size
	x0, x, y, z := s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, w)), s.place(s.typ(r, w))
	normed, q, o, act := s.place(s.typ(r, w)), s.place(s.typ(r, hd)), s.place(s.typ(r, hd)), s.place(s.typ(r, s.inner))
	s.logits = s.place(s.typ(r, s.vocab))
	s.add(op.Scale, op.Attr{Scale: 1}, []op.Type{s.typ(1, r, w)}, x0, x)
	attn := op.Attr{Heads: s.heads, KVHeads: s.kv, Scale: 0.0884}
	heads := attn
	heads.Scale, heads.Eps = 1, 1e-5
	norm := s.typ(w)
	for i := range layers {
		ck, cv := s.place(cache), s.place(cache)
		s.reads += 2 * cache.Bytes()
		tq, bq := weight(m.layer(i, "q"), hd, w)
		tk, bk := weight(m.layer(i, "k"), kd, w)
		tv, bv := weight(m.layer(i, "v"), kd, w)
		to, bo := weight(m.layer(i, "o"), w, hd)
		tg, bg := weight(m.layer(i, "gate"), s.inner, w)
		tu, bu := weight(m.layer(i, "up"), s.inner, w)
		td, bd := weight(m.layer(i, "down"), w, s.inner)
		s.add(op.NormHeads, heads, []op.Type{s.typ(1, r, w), norm, tq, tk, tv, freq, cache, cache, tPos, tSeq, tPages},
			x, s.place(norm), bq, bk, bv, bFreq, ck, cv, bPos, bSeq, bPages, ck, cv, q)
		s.add(op.AttendCache, attn, []op.Type{s.typ(1, r, hd), cache, cache, tPos, tSeq, tPages}, q, ck, cv, bPos, bSeq, bPages, o)
		s.add(op.QuantizedPlus, op.Attr{}, []op.Type{s.typ(1, r, hd), to, s.typ(1, r, w)}, o, bo, x, y)
		s.add(op.NormGated, op.Attr{Eps: 1e-5, Func: op.SiLU}, []op.Type{s.typ(1, r, w), norm, tg, tu}, y, s.place(norm), bg, bu, act)
		s.add(op.QuantizedPlus, op.Attr{}, []op.Type{s.typ(1, r, s.inner), td, s.typ(1, r, w)}, act, bd, y, z)
		x, z = z, x
	}
	s.add(op.RMSNorm, op.Attr{Eps: 1e-5}, []op.Type{s.typ(1, r, w), norm}, x, s.place(norm), normed)
	th, bh := weight(m.head, s.vocab, w)
	if m.head == dtype.BF16 {
		s.add(op.MatMul, op.Attr{TransB: true, Constant: true}, []op.Type{s.typ(1, r, w), th}, normed, bh, s.logits)
		return
	}
	s.add(op.QuantizedMatmul, op.Attr{}, []op.Type{s.typ(1, r, w), th}, normed, bh, s.logits)
}

// valid replaces the noise of the stack by bytes that are small numbers in the formats of GGUF and
// others: every 16 bytes begin with halves of about 0.01.
func (s *decodeStack) valid() {
	const chunk = 64 << 20
	host, err := s.d.HostAlloc(chunk)
	s.do(err)
	defer host.Free()
	b := host.Host()
	for i := range b {
		b[i] = byte(op.Key(uint64(i))) & 0x2f // an f16, bf16 or f32 of such bytes is small
	}
	for done := int64(0); done < s.mem.Size(); done += chunk {
		n := min(chunk, s.mem.Size()-done)
		s.do(s.q.Copy(device.Buffer{Memory: s.mem, Offset: done, Bytes: n}, device.Buffer{Memory: host, Bytes: n}))
	}
	s.do(s.q.Sync())
}

// Steps with packed weights have the same bits however they are launched, and a row the bits that it has
// by itself.
func TestPackedStepsAgree(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	s := newStack(t, d, 0, 3<<30)
	s.valid()
	s.vocab = 4096
	base := s.used
	for _, m := range []packedModel{mixedK, uniform(quant.NF4, quant.NF4), uniform(quant.RowF8, quant.Q8_0), uniform(quant.RowI8, quant.RowI8)} {
		var want []byte
		for _, c := range []struct {
			name                    string
			launches, copies, whole bool
			stages                  int64
		}{{"as it is", false, false, false, 16}, {"again", false, false, false, 16}, {"no early launches", true, false, false, 16}, {"no copy engine", false, true, false, 16},
			{"few stages", false, false, false, 3}, {"a block of a multiprocessor", false, false, true, 16}} {
			d.plainly.launches, d.plainly.copies, packedWhole, packedStages = c.launches, c.copies, c.whole, c.stages
			s.used = base
			run := &decodeStep{decodeStack: s, rows: 2, context: 256}
			run.buildPacked(m, 6)
			run.time()
			got := run.get(run.logits)
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %s: other logits", m.name, c.name)
			}
		}
		d.plainly.launches, d.plainly.copies, packedWhole, packedStages = false, false, false, 16
	}
}

// Steps of decoding of the Llama-3-8B shape with packed weights: tokens a second, and of each kind of
// kernel the rate at which it reads.
func BenchmarkPackedStep(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	s := newStack(b, d, 0, 20<<30)
	s.valid()
	base := s.used
	measure := func(m packedModel, rows int64, detail bool) {
		s.used = base
		run := &decodeStep{decodeStack: s, rows: rows, context: 1024}
		run.buildPacked(m, 32)
		took := run.time()
		line := fmt.Sprintf("%-11s %d rows: %.3f ms, %.0f tok/s, %.0f GB/s", m.name, rows, took.Seconds()*1e3, float64(rows)/took.Seconds(), float64(run.reads)/took.Seconds()/1e9)
		if detail {
			all := slices.Clone(run.launches)
			for _, kind := range []op.Kind{op.NormHeads, op.AttendCache, op.QuantizedPlus, op.NormGated, op.QuantizedMatmul, op.MatMul} {
				run.launches = slices.Clone(all)
				run.only(kind)
				if len(run.launches) > 0 {
					t := run.time()
					line += fmt.Sprintf("\n    %-18s %3d: %6.2f µs each, %.0f GB/s", kind, len(run.launches), t.Seconds()*1e6/float64(len(run.launches)), float64(run.costs())/t.Seconds()/1e9)
				}
			}
		}
		fmt.Println(line)
	}
	for _, rows := range []int64{2, 4, 8} {
		measure(mixedK, rows, false)
	}
	for _, m := range packedModels {
		measure(m, 1, true)
	}
	for b.Loop() {
		time.Sleep(time.Millisecond)
	}
}
