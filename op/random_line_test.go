package op

import (
	"fmt"
	"math"
	"testing"
)

// decisions are what dropout decides for n places of each of some lines.
func decisions(lines, n int, p float64, at func(line int) Line) [][]float64 {
	limit, all := LineLimit(p), make([][]float64, lines)
	for i := range all {
		all[i] = make([]float64, n)
		for j, l := 0, at(i); j < n; j++ {
			if l.Bits(uint32(j)) < limit {
				all[i][j] = 1
			}
		}
	}
	return all
}

// far says that a sum over n pairs of decisions, one less its mean p times the other less its
// own, is more than five of its standard deviations off zero.
func far(sum float64, n int, p float64) bool {
	return math.Abs(sum) > 5*p*(1-p)*math.Sqrt(float64(n))
}

// Dropout by lines drops the share it should, and what it decides for a pair says nothing of its
// neighbours: along a line, in the next lines, heads and samples, in other streams and iterations.
func TestLinesAreIndependent(t *testing.T) {
	const lines, n = 128, 2048
	for _, p := range []float64{0.05, 0.1, 0.5} {
		base := decisions(lines, n, p, func(i int) Line { return NewStream(7, 3).Line(uint64(i)) })
		sum := 0.0
		for _, row := range base {
			for _, x := range row {
				sum += x
			}
		}
		if z := (sum - p*lines*n) / math.Sqrt(p*(1-p)*lines*n); math.Abs(z) > 4 {
			t.Errorf("p=%v: a share of %v is dropped, %v standard deviations off", p, sum/(lines*n), z)
		}
		for _, lag := range []int{1, 2, 3, 4, 7, 8, 16, 32, 64, 128, 1000} {
			sum, count := 0.0, 0
			for _, row := range base {
				for j := lag; j < n; j++ {
					sum, count = sum+(row[j]-p)*(row[j-lag]-p), count+1
				}
			}
			if far(sum, count, p) {
				t.Errorf("p=%v: places %d apart are correlated by %v", p, lag, sum/float64(count)/p/(1-p))
			}
		}
		others := map[string]func(i int) Line{}
		for _, step := range []uint64{1, 2, 64, 3000, 3000 * 16} {
			others[fmt.Sprintf("lines %d apart", step)] = func(i int) Line { return NewStream(7, 3).Line(uint64(i) + step) }
		}
		for _, next := range []uint64{8, 9, 7 + 1<<32} {
			others[fmt.Sprintf("iteration %d", next)] = func(i int) Line { return NewStream(next, 3).Line(uint64(i)) }
		}
		others["the next stream"] = func(i int) Line { return NewStream(7, 4).Line(uint64(i)) }
		others["a key of names"] = func(i int) Line { return NewStream(Key(7, 1, 2), 3).Line(uint64(i)) }
		for name, at := range others {
			other := decisions(lines, n, p, at)
			for _, shift := range []int{0, 1, 2, 5} {
				sum, count := 0.0, 0
				for i := range base {
					for j := shift; j < n; j++ {
						sum, count = sum+(base[i][j]-p)*(other[i][j-shift]-p), count+1
					}
				}
				if far(sum, count, p) {
					t.Errorf("p=%v: %s, %d places on, are correlated by %v", p, name, shift, sum/float64(count)/p/(1-p))
				}
			}
		}
	}
}

// chiSquare is how far counts are from equal, in standard deviations of that measure.
func chiSquare(counts []int) float64 {
	total, x := 0, 0.0
	for _, c := range counts {
		total += c
	}
	mean := float64(total) / float64(len(counts))
	for _, c := range counts {
		x += (float64(c) - mean) * (float64(c) - mean) / mean
	}
	degrees := float64(len(counts) - 1)
	return (x - degrees) / math.Sqrt(2*degrees)
}

// Patterns of neighbouring decisions come equally often: 16 along a line, 4 × 4 of neighbouring
// lines, and the upper bits of one number. The same holds for numbers of Stream itself.
func TestPatternsOfLines(t *testing.T) {
	const lines, n = 1024, 4096
	for name, at := range map[string]func(i, j int) uint32{
		"lines": func() func(i, j int) uint32 {
			all := make([]Line, lines)
			for i := range all {
				all[i] = NewStream(11, 1).Line(uint64(i))
			}
			return func(i, j int) uint32 { return all[i].Bits(uint32(j)) }
		}(),
		"the stream": func(i, j int) uint32 { return NewStream(11, 1).Bits(uint64(i)*n+uint64(j)) << 8 },
	} {
		var along, square, upper [1 << 16]int
		for i := 0; i < lines; i++ {
			for j := 0; j < n; j += 16 {
				x := 0
				for k := range 16 {
					bits := at(i, j+k)
					upper[bits>>16]++
					x = x<<1 | int(bits>>31)
				}
				along[x]++
			}
		}
		for i := 0; i < lines; i += 4 {
			for j := 0; j < n; j += 4 {
				x := 0
				for k := range 16 {
					x = x<<1 | int(at(i+k/4, j+k%4)>>31)
				}
				square[x]++
			}
		}
		for what, counts := range map[string]*[1 << 16]int{"16 places": &along, "4 × 4 places": &square, "16 bits": &upper} {
			if z := chiSquare(counts[:]); math.Abs(z) > 5 {
				t.Errorf("%s: %s differ from equally often by %v standard deviations", name, what, z)
			}
		}
	}
}
