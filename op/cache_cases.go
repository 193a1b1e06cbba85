package op

import (
	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
)

// cacheCase is a step over a cache: rows as sequence and position, and the table of pages.
type cacheCase struct {
	name                 string
	attr                 Attr
	d                    int
	page, streams, table int
	rows                 [][2]int32 // sequence and position
	keys, values         dtype.Type // Invalid: the list's
	spare                int        // pages of the cache that no sequence has
	large                bool
}

// run makes rows of one sequence, positions from to to-1.
func run(sequence, from, to int32) (rows [][2]int32) {
	for p := from; p < to; p++ {
		rows = append(rows, [2]int32{sequence, p})
	}
	return rows
}

func (l *CaseList) cachedAttention() {
	idle := [2]int32{-1, 0}
	grouped := Attr{Heads: 4, KVHeads: 2, Scale: 0.35}
	one := Attr{Heads: 1, KVHeads: 1, Scale: 0.5}
	join := func(parts ...[][2]int32) (rows [][2]int32) {
		for _, p := range parts {
			rows = append(rows, p...)
		}
		return rows
	}
	for _, c := range []cacheCase{
		{name: "first token", attr: one, d: 4, page: 4, streams: 1, table: 1, rows: run(0, 0, 1)},
		{name: "decode", attr: grouped, d: 8, page: 4, streams: 1, table: 5, rows: run(0, 13, 14)},
		{name: "chunk from 0", attr: grouped, d: 8, page: 4, streams: 1, table: 4, rows: run(0, 0, 13)},
		{name: "later chunk", attr: grouped, d: 6, page: 5, streams: 2, table: 4, rows: run(1, 7, 18), spare: 3},
		{name: "several sequences", attr: grouped, d: 8, page: 3, streams: 4, table: 6, rows: join(run(2, 4, 9), run(0, 0, 3), run(3, 16, 17))},
		{name: "idle rows", attr: grouped, d: 8, page: 4, streams: 3, table: 3, rows: [][2]int32{{0, 5}, idle, {2, 11}, {1, -1}, {7, 2}, idle}},
		{name: "all idle", attr: one, d: 4, page: 4, streams: 1, table: 1, rows: [][2]int32{idle, idle}},
		{name: "1 key head", attr: Attr{Heads: 6, KVHeads: 1, Scale: 0.3}, d: 10, page: 7, streams: 2, table: 3, rows: join(run(0, 8, 9), run(1, 20, 21))},
		{name: "window", attr: with(grouped, func(a *Attr) { a.Window = 5 }), d: 8, page: 4, streams: 1, table: 5, rows: run(0, 6, 18)},
		{name: "window 1", attr: with(one, func(a *Attr) { a.Window = 1 }), d: 4, page: 4, streams: 1, table: 2, rows: run(0, 2, 6)},
		{name: "ring", attr: with(grouped, func(a *Attr) { a.Window = 6 }), d: 8, page: 4, streams: 2, table: 3, rows: join(run(0, 21, 24), run(1, 3, 6))},
		{name: "ring of one page", attr: with(one, func(a *Attr) { a.Window = 3 }), d: 4, page: 8, streams: 1, table: 1, rows: run(0, 14, 17)},
		{name: "keys bf16 values f32", attr: grouped, d: 8, page: 4, streams: 2, table: 3, rows: join(run(0, 3, 9), run(1, 10, 11)), keys: dtype.BF16, values: dtype.F32},
		{name: "keys f16 values bf16", attr: grouped, d: 8, page: 4, streams: 2, table: 3, rows: join(run(0, 3, 9), run(1, 10, 11)), keys: dtype.F16, values: dtype.BF16},
		{name: "keys int8 values fp8", attr: grouped, d: 8, page: 4, streams: 2, table: 3, rows: join(run(0, 3, 9), run(1, 10, 11)), keys: quant.RowI8, values: quant.RowF8},
		{name: "keys fp8 values int8", attr: grouped, d: 64, page: 64, streams: 2, table: 3, rows: join(run(0, 90, 99), run(1, 100, 101)), keys: quant.RowF8, values: quant.RowI8, large: true},
		{name: "4 bits", attr: grouped, d: 70, page: 4, streams: 2, table: 3, rows: join(run(0, 3, 9), run(1, 10, 11)), keys: quant.RowI4, values: quant.RowI4},
		{name: "keys int8 values int4", attr: with(grouped, func(a *Attr) { a.Scale = 0.09 }), d: 128, page: 64, streams: 2, table: 3, rows: join(run(0, 90, 91), run(1, 150, 151)), keys: quant.RowI8, values: quant.RowI4, large: true},
		{name: "keys int4 values fp8", attr: Attr{Heads: 6, KVHeads: 2, Scale: 0.1}, d: 64, page: 64, streams: 3, table: 5, rows: [][2]int32{{0, 63}, {2, 301}}, keys: quant.RowI4, values: quant.RowF8, large: true},
		{name: "70 rows int8", attr: with(grouped, func(a *Attr) { a.Scale = 0.125 }), d: 64, page: 64, streams: 2, table: 4, rows: join(run(1, 90, 130), run(0, 0, 30)), keys: quant.RowI8, values: quant.RowI8, large: true},
		{name: "70 rows int4 fp8", attr: Attr{Heads: 8, KVHeads: 2, Scale: 0.09}, d: 128, page: 64, streams: 2, table: 4, rows: join(run(1, 90, 130), run(0, 0, 30)), keys: quant.RowI4, values: quant.RowF8, large: true},
		{name: "long int8", attr: Attr{Heads: 8, KVHeads: 2, Scale: 0.09}, d: 128, page: 64, streams: 3, table: 21, rows: [][2]int32{{0, 1299}, {1, 700}, {2, 127}}, keys: quant.RowI8, values: quant.RowI8, large: true},
		{name: "long fp8", attr: Attr{Heads: 10, KVHeads: 1, Scale: 0.1}, d: 64, page: 32, streams: 2, table: 20, rows: [][2]int32{{0, 601}, {1, 255}}, keys: quant.RowF8, values: quant.RowF8, large: true},
		{name: "long int8 under a window", attr: Attr{Heads: 3, KVHeads: 3, Scale: 0.1, Window: 300}, d: 64, page: 64, streams: 2, table: 6, rows: [][2]int32{{0, 901}, {1, 255}}, keys: quant.RowI8, values: quant.RowI8, large: true},
		{name: "drafts", attr: with(grouped, func(a *Attr) { a.Scale = 0.125 }), d: 64, page: 64, streams: 5, table: 3, rows: join(run(0, 126, 130), run(2, 0, 1)), large: true},
		{name: "drafts int8", attr: Attr{Heads: 8, KVHeads: 2, Scale: 0.09}, d: 128, page: 64, streams: 4, table: 4, rows: join(run(1, 190, 193), run(3, 0, 1)), keys: quant.RowI8, values: quant.RowI8, large: true},
		{name: "chunks of positions", attr: Attr{Heads: 2, KVHeads: 1, Scale: 0.2}, d: 64, page: 64, streams: 2, table: 18, rows: join(run(0, 1100, 1101), run(1, 510, 514)), large: true},
		{name: "chunks under a window", attr: Attr{Heads: 2, KVHeads: 2, Scale: 0.2, Window: 600}, d: 16, page: 64, streams: 1, table: 12, rows: run(0, 1500, 1503), large: true},
		{name: "130 rows", attr: with(grouped, func(a *Attr) { a.Scale = 0.125 }), d: 64, page: 64, streams: 2, table: 4, rows: join(run(1, 30, 95), run(0, 0, 64), run(1, 29, 30)), large: true},
		{name: "128 wide", attr: Attr{Heads: 8, KVHeads: 2, Scale: 0.09}, d: 128, page: 64, streams: 3, table: 3, rows: [][2]int32{{0, 63}, {1, 64}, {2, 150}}, large: true},
	} {
		l.cacheCase(c)
	}
}

func (l *CaseList) cacheCase(c cacheCase) {
	rows, pages := len(c.rows), c.streams*c.table+c.spare
	keys, values := l.DType, l.DType
	if c.keys != dtype.Invalid {
		keys, values = c.keys, c.values
	}
	h, kv := int(c.attr.Heads)*c.d, int(c.attr.KVHeads)*c.d
	held := func(t dtype.Type) Operand {
		return Operand{Type{t, shape.Of(pages, int(c.attr.KVHeads), c.page, c.d)}, fillBy(func(_ int, u float64) float64 { return 4*u - 2 })}
	}
	column := func(k int) Operand {
		return Integers(func(i int, _ float64) int32 { return c.rows[i][k] }, 1, rows)
	}
	// Physical pages are in no order: a step that shares no factor with their number visits all.
	step := 7
	for gcd(step, pages) != 1 {
		step++
	}
	table := Integers(func(i int, _ float64) int32 { return int32((i + 1) * step % pages) }, c.streams, c.table)
	l.Add(c.name, CachedAttention, c.attr, l.Sized(2, 1, rows, h), l.Sized(2, 1, rows, kv), l.Sized(2, 1, rows, kv),
		held(keys), held(values), column(1), column(0), table).Large = c.large
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
