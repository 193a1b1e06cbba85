package pass

import (
	"math/rand/v2"
	"sort"
	"testing"
)

// packPlain is pack with a list of what is placed, looked through from the bottom.
func packPlain(spans []*Span, align int64) (total int64) {
	var placed []*Span // by offset
	for _, s := range largestFirst(spans) {
		var end int64
		for _, p := range placed {
			if p.To < s.From || s.To < p.From {
				continue
			}
			if p.Offset-end >= s.Bytes {
				break
			}
			end = max(end, AlignUp(p.Offset+p.Bytes, align))
		}
		s.Offset = end
		placed = append(placed, s)
		sort.SliceStable(placed, func(i, j int) bool { return placed[i].Offset < placed[j].Offset })
		total = max(total, s.Offset+s.Bytes)
	}
	return total
}

func randomSpans(r *rand.Rand, n, moments int) (spans []*Span) {
	for range n {
		from := r.IntN(moments+1) - 1 // -1: nobody uses it
		to := from
		if from >= 0 {
			to = min(from+r.IntN(1+r.IntN(moments)), moments-1)
		}
		spans = append(spans, &Span{Bytes: r.Int64N(5) * r.Int64N(1000), From: from, To: to})
	}
	return spans
}

func TestPackAgainstPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		moments := 1 + r.IntN(60)
		spans := randomSpans(r, r.IntN(80), moments)
		total := Pack(spans, 64)
		offsets := make([]int64, len(spans))
		for i, s := range spans {
			offsets[i] = s.Offset
		}
		if want := packPlain(spans, 64); total != want {
			t.Fatalf("packed into %d bytes, plainly into %d", total, want)
		}
		for i, s := range spans {
			if s.Bytes > 0 && s.Offset != offsets[i] {
				t.Fatalf("span %d is at %d, plainly at %d", i, offsets[i], s.Offset)
			}
		}
		if least := PeakLive(spans, moments); total < least {
			t.Fatalf("packed into %d bytes, and %d are alive at once", total, least)
		}
	}
}

// In every order spans that are alive at the same time lie apart.
func TestEveryOrderKeepsSpansApart(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for by := range Orders {
		for range 20 {
			spans := randomSpans(r, 40, 30)
			total := PackBy(spans, 64, by)
			for i, s := range spans {
				if s.Bytes > 0 && s.Offset+s.Bytes > total {
					t.Fatalf("order %d: span %d ends at %d of %d", by, i, s.Offset+s.Bytes, total)
				}
				for k, o := range spans[:i] {
					if s.Bytes > 0 && o.Bytes > 0 && s.From <= o.To && o.From <= s.To && s.Offset < o.Offset+o.Bytes && o.Offset < s.Offset+s.Bytes {
						t.Fatalf("order %d: spans %d and %d share bytes", by, k, i)
					}
				}
			}
		}
	}
}

// How much longer packing as many spans as a large plan has takes than sorting them.
func BenchmarkPack(b *testing.B) {
	spans := randomSpans(rand.New(rand.NewPCG(1, 1)), 20_000, 30_000)
	for _, s := range spans {
		s.To = min(s.To, s.From+200)
	}
	for b.Loop() {
		Pack(spans, 256)
	}
}
