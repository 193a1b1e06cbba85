package generate

import (
	"fmt"
	"testing"

	"spillway/executor"
	"spillway/graph"
)

// What the host does for a decode step besides running it: rows are chosen, pages assigned and
// the batch is filled. It is to be little next to 4 ms of reading an 8B model.
func BenchmarkHostShare(b *testing.B) {
	for _, streams := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("%d sequences", streams), func(b *testing.B) {
			const context = 32768
			s := hostOnly(b, streams, context)
			b.ReportAllocs()
			n := 1
			for b.Loop() {
				if n++; n == context {
					b.StopTimer()
					s, n = hostOnly(b, streams, context), 2
					b.StartTimer()
				}
				for _, q := range s.order {
					q.tokens = append(q.tokens, 3)
				}
				step := s.gather()
				if err := s.prepare(step); err != nil {
					b.Fatal(err)
				}
				for _, r := range s.rows {
					r.of.computed = r.position + 1
				}
			}
		})
	}
}

// hostOnly is a session with one step for all sequences, and nothing to run it on.
func hostOnly(tb testing.TB, streams, context int) *Session {
	tb.Helper()
	c := graph.KVCache{Streams: int64(streams), Context: int64(context), Page: 64, Chunk: 2048}
	table, err := newPageTable("pages", streams, int(c.Pages(0)), &c, 1)
	if err != nil {
		tb.Fatal(err)
	}
	rows := func() []byte { return make([]byte, 4*streams) }
	s := &Session{cache: c, tables: []*pageTable{table}, slots: make([]*cachedSequence, streams), steps: []executor.Step{{Rows: int64(streams), Outputs: int64(streams),
		Batch: map[string][]byte{"tokens": rows(), "positions": rows(), "sequences": rows(), "pages": make([]byte, 4*len(table.entries))}}}}
	for range streams {
		q, err := s.open(nil)
		if err != nil {
			tb.Fatal(err)
		}
		q.tokens = append(make([]int32, 0, context), 1)
	}
	return s
}
