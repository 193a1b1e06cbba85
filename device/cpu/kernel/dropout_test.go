package kernel

import (
	"math"
	"testing"
	"time"

	"spillway/op"
)

// Numbers are multiplied by what the definition says, at chances whose numbers of bits are
// whole and at others, also at the borders, whatever the position, how far the next is and how
// many there are; by every path.
func TestDropout(t *testing.T) {
	x := make([]float32, 3001)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	eachPath(t, func(t *testing.T) {
		for _, chance := range []float64{0, 1.0 / (1 << 24), 0.1, 0.25, 0.5, 1.0 / 3, 0.9, 1 - 1.0/(1<<24)} {
			for _, first := range []uint64{0, 12345, 1 << 63} {
				for _, stride := range []uint64{1, 3, 1024} {
					for _, n := range []int{1, 15, 16, 17, 3001} {
						dropAndCompare(t, x[:n], chance, first, stride)
					}
				}
			}
		}
	})
}

func dropAndCompare(t *testing.T, x []float32, chance float64, first, stride uint64) {
	t.Helper()
	d, y, dropped := NewDropout(chance), make([]float32, len(x)), 0
	d.Start(op.NewStream(7, 2), first)
	d.Apply(y, x, 3, stride)
	for i := range y {
		want := x[i] * float32(1/(1-chance))
		if op.Uniform(7, 2, first+3+uint64(i)*stride) < float32(chance) {
			want = x[i] * 0
			dropped++
		}
		if math.Float32bits(y[i]) != math.Float32bits(want) {
			t.Fatalf("chance %v, stride %d: number %d, %v, became %v, want %v", chance, stride, i, x[i], y[i], want)
		}
	}
	if share := float64(dropped) / float64(len(x)); len(x) > 1000 && math.Abs(share-chance) > 0.05 {
		t.Errorf("chance %v: %v were dropped", chance, share)
	}
}

// BenchmarkDropout compares dropout with its definition, number by number, in turns.
func BenchmarkDropout(b *testing.B) {
	const chance = 0.1
	x, y := make([]float32, 1<<16), make([]float32, 1<<16)
	d := NewDropout(chance)
	d.Start(op.NewStream(1, 1), 0)
	plain, ours := time.Duration(1<<62), time.Duration(1<<62)
	for b.Loop() {
		start := time.Now()
		for i := range y {
			y[i] = x[i] * (1 / (1 - chance))
			if op.Uniform(1, 1, uint64(i)) < chance {
				y[i] = 0
			}
		}
		middle := time.Now()
		d.Apply(y, x, 0, 1)
		plain, ours = min(plain, middle.Sub(start)), min(ours, time.Since(middle))
	}
	b.ReportMetric(plain.Seconds()/ours.Seconds(), "times-as-fast")
}
