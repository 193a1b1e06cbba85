package cpu

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// cacheCall is attention over a cache of its own, for tests that feed it rows.
type cacheCall struct {
	b               *bench
	attr            op.Attr
	d, page         int
	numbers, stored dtype.Type
	pages           device.Buffer
	keys, values    device.Buffer
	table           op.Type
	cache           op.Type
}

func newCacheCall(t testing.TB, b *bench, attr op.Attr, d, page, positions int, numbers, stored dtype.Type) *cacheCall {
	count := (positions + page - 1) / page
	c := &cacheCall{b: b, attr: attr, d: d, page: page, numbers: numbers, stored: stored,
		table: op.Type{DType: dtype.I32, Shape: shape.Of(1, count)},
		cache: op.Type{DType: stored, Shape: shape.Of(count, int(attr.KVHeads), page, d)}}
	c.pages, c.keys, c.values = b.take(c.table.Bytes()), b.take(c.cache.Bytes()), b.take(c.cache.Bytes())
	for i := range count {
		view[int32](c.pages)[i] = int32((i*7 + 3) % count) // not in order
		if count%7 == 0 {
			view[int32](c.pages)[i] = int32(count - 1 - i)
		}
	}
	for _, m := range []device.Buffer{c.keys, c.values} { // what was never stored must not matter
		for i := range m.Host() {
			m.Host()[i] = 0xff
		}
	}
	return c
}

// rows prepares a call on positions from..to, whose numbers follow from the positions.
func (c *cacheCall) rows(t testing.TB, from, to int) prepared {
	t.Helper()
	n, width, kv := to-from, c.d*int(c.attr.Heads), c.d*int(c.attr.KVHeads)
	types := []op.Type{{DType: c.numbers, Shape: shape.Of(1, n, width)}, {DType: c.numbers, Shape: shape.Of(1, n, kv)}, {DType: c.numbers, Shape: shape.Of(1, n, kv)},
		c.cache, c.cache, {DType: dtype.I32, Shape: shape.Of(1, n)}, {DType: dtype.I32, Shape: shape.Of(1, n)}, c.table}
	var in []device.Buffer
	for i, typ := range types[:3] {
		a := op.NewArray(typ)
		for j := range a.F {
			at := from*len(a.F)/n + j
			a.F[j] = math.Sin(float64(at*(3+i))) * (1 + float64(at%11)/5)
		}
		raw, err := a.Encode()
		must(t, err)
		in = append(in, c.b.take(typ.Bytes()))
		copy(in[i].Host(), raw)
	}
	positions, sequences := c.b.take(types[5].Bytes()), c.b.take(types[6].Bytes())
	for i := range n {
		view[int32](positions)[i], view[int32](sequences)[i] = int32(from+i), 0
	}
	in = append(in, c.keys, c.values, positions, sequences, c.pages)
	call, err := op.Make(op.CachedAttention, c.attr, types...)
	must(t, err)
	k, err := c.b.d.Kernel(call)
	must(t, err)
	out := c.b.take(call.Out[2].Bytes())
	return prepared{k, &device.Launch{Buffers: append(in, c.keys, c.values, out), Workspace: c.b.take(k.Workspace())}, out}
}

// The attention of a text over a cache has the same bits whether it is computed at once, in
// pieces or token by token, on every path, with every type of cache and pages of any size.
func TestCachedAttentionInPieces(t *testing.T) {
	defer kernel.Choose(kernel.Name())
	const length = 600
	for _, path := range kernel.Paths() {
		_, err := kernel.Choose(path)
		must(t, err)
		for i, c := range []struct {
			attr    op.Attr
			d, page int
			stored  dtype.Type
		}{
			{op.Attr{Heads: 4, KVHeads: 2, Scale: 0.3}, 24, 64, dtype.BF16},
			{op.Attr{Heads: 6, KVHeads: 1, Scale: 0.3, Window: 100}, 17, 40, dtype.F16},
			{op.Attr{Heads: 2, KVHeads: 2, Scale: 0.3, Window: 530}, 16, 128, dtype.F32},
			{op.Attr{Heads: 2, KVHeads: 1, Scale: 0.3}, 8, 64, quant.RowI8},
		} {
			b := newBench(t, 64<<20)
			numbers := []dtype.Type{dtype.F32, dtype.BF16}[i%2]
			whole := newCacheCall(t, b, c.attr, c.d, c.page, length, numbers, c.stored).rows(t, 0, length)
			b.run(t, whole)
			each := len(whole.out.Host()) / length
			pieces := newCacheCall(t, b, c.attr, c.d, []int{64, 7, 16, 30}[i], length, numbers, c.stored)
			for at, n := 0, 0; at < length; at += n {
				n = []int{1, 7, 130, 1, 64, 300}[(at/3+n)%6]
				n = min(n, length-at)
				p := pieces.rows(t, at, at+n)
				b.run(t, p)
				if want := whole.out.Host()[at*each : (at+n)*each]; !bytes.Equal(p.out.Host(), want) {
					t.Fatalf("%s, case %d: positions %d to %d have other bits alone than in the whole text", path, i, at, at+n)
				}
			}
		}
	}
}

// BenchmarkCachedAttention shows a token at the end of a text, and the text's last 512 at once.
func BenchmarkCachedAttention(b *testing.B) {
	attr := op.Attr{Heads: 32, KVHeads: 4, Scale: 0.125}
	for _, length := range []int{512, 4096} {
		for _, rows := range []int{1, 512} {
			b.Run(fmt.Sprintf("%d positions/%d rows", length, rows), func(b *testing.B) {
				m := newBench(b, 64<<20)
				c := newCacheCall(b, m, attr, 64, 64, length, dtype.BF16, dtype.BF16)
				clear(c.keys.Host())
				clear(c.values.Host())
				p := c.rows(b, length-rows, length)
				best := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					m.run(b, p)
					best = min(best, time.Since(start))
				}
				b.ReportMetric(best.Seconds()*1e6, "µs-best")
			})
		}
	}
}
