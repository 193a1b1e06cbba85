package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"spillway/internal/offheap"
	"spillway/op"
	"spillway/optim"
)

// Five steps of Adam and AdamW against the textbook in double precision.
func TestAdam(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, n := range []int{1, 15, 16, 50} {
			for _, decoupled := range []bool{false, true} {
				rng := newRand()
				w, m, v := random(rng, n), make([]float32, n), make([]float32, n)
				pw, pm, pv := doubles(w), doubles(m), doubles(v)
				for step := 1; step <= 5; step++ {
					g := random(rng, n)
					b1, b2 := math.Pow(0.9, float64(step)), math.Pow(0.99, float64(step))
					var a Adam
					a.Set(optim.AdamStep{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, Bias1: float32(1 - b1), Bias2: float32(math.Sqrt(1 - b2)), Decoupled: decoupled}.Scalars(), 0.5, [2]bool{})
					a.Update(w, g, [2][]float32{m, v})
					for i := range pw {
						d := 0.5 * float64(g[i])
						if decoupled {
							pw[i] -= 0.01 * 0.1 * pw[i]
						} else {
							d += 0.1 * pw[i]
						}
						pm[i] = 0.9*pm[i] + 0.1*d
						pv[i] = 0.99*pv[i] + 0.01*d*d
						pw[i] -= 0.01 * pm[i] / (1 - b1) / (math.Sqrt(pv[i]/(1-b2)) + 1e-6)
					}
				}
				for i := range pw {
					near(t, "w", i, w[i], pw[i])
					near(t, "m", i, m[i], pm[i])
					near(t, "v", i, v[i], pv[i])
				}
			}
		}
	})
}

func TestSGD(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, n := range []int{1, 15, 16, 50} {
			for _, nesterov := range []bool{false, true} {
				rng := newRand()
				w, m := random(rng, n), make([]float32, n)
				pw, pm := doubles(w), doubles(m)
				for step := range 4 {
					g := random(rng, n)
					var o SGD
					o.Set(optim.SGDStep{Rate: 0.1, Decay: 0.01, Momentum: 0.9, Dampening: 0.2, First: step == 0, Nesterov: nesterov}.Scalars(), 0.5, [2]bool{})
					o.Update(w, g, [2][]float32{m})
					for i := range pw {
						d := 0.5*float64(g[i]) + 0.01*pw[i]
						pm[i] = 0.9*pm[i] + 0.8*d
						if step == 0 {
							pm[i] = d
						}
						if nesterov {
							pw[i] -= 0.1 * (d + 0.9*pm[i])
						} else {
							pw[i] -= 0.1 * pm[i]
						}
					}
				}
				for i := range pw {
					near(t, "w", i, w[i], pw[i])
					near(t, "m", i, m[i], pm[i])
				}
			}
		}
	})
}

// hostile are n numbers of all sizes: most as training has them, between them zeros of
// both signs, the smallest and the largest there are, and some that are not finite.
func hostile(rng *rand.Rand, n int) []float32 {
	edges := []float32{0, negativeZero, 0x1p-149, -0x1p-130, -0x1.fffffcp-127, 0x1p-126, 1e-30, math.MaxFloat32, -math.MaxFloat32, infinity, -infinity, float32(math.NaN())}
	x := make([]float32, n)
	for i := range x {
		switch rng.IntN(8) {
		case 0:
			x[i] = edges[rng.IntN(len(edges))]
		case 1:
			x[i] = math.Float32frombits(rng.Uint32())
		default:
			x[i] = float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(40)))
		}
	}
	return x
}

var infinity, negativeZero = float32(math.Inf(1)), float32(math.Copysign(0, -1))

// sameBits compares numbers, of which any NaN is as good as another.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: number %d is %x, in plain Go %x", what, i, got[i], want[i])
		}
	}
}

// A step of a rule, on a weight, a gradient and two states.
type ruleStep func(w, g, m, v []float32)

func stepOf(o Optimizer, s op.Scalars, flush ...bool) ruleStep {
	o.Set(s, 0.7, [2]bool{flush[0], flush[len(flush)-1]})
	return func(w, g, m, v []float32) { o.Update(w, g, [2][]float32{m, v}) }
}

// Every path gives the bits of the plain one, whatever the numbers are, and however many.
func TestUpdatesHaveTheSameBits(t *testing.T) {
	adam := optim.AdamStep{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, Bias1: 0.1, Bias2: 0.3}
	adamw, noEps := adam, adam
	adamw.Decoupled, noEps.Decoupled, noEps.Eps = true, true, 0
	lion := optim.LionStep{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}
	for name, step := range map[string]ruleStep{
		"adam":              stepOf(new(Adam), adam.Scalars(), true, true),
		"adam as it is":     stepOf(new(Adam), adam.Scalars(), false, false),
		"adamw without eps": stepOf(new(Adam), noEps.Scalars(), true, true),
		"adamw mixed":       stepOf(new(Adam), adamw.Scalars(), false, true),
		"sgd":               stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Decay: 0.01, Momentum: 0.9, Dampening: 0.2}.Scalars(), true),
		"sgd first":         stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Momentum: 0.9, First: true}.Scalars(), true),
		"sgd undecayed":     stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Momentum: 0.9}.Scalars(), true),
		"sgd as it is":      stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Momentum: 0.9}.Scalars(), false),
		"nesterov":          stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Momentum: 0.9, Nesterov: true}.Scalars(), true),
		"no momentum":       stepOf(new(SGD), optim.SGDStep{Rate: 0.1, Decay: 0.01}.Scalars(), true),
		"lion":              stepOf(new(Lion), lion.Scalars(), true),
		"lion as it is":     stepOf(new(Lion), lion.Scalars(), false),
		"rmsprop":           stepOf(new(RMSprop), optim.RMSpropStep{Rate: 0.01, Decay: 0.1, Alpha: 0.99, Rest: 0.01, Eps: 1e-8}.Scalars(), true),
		"adagrad":           stepOf(new(RMSprop), optim.RMSpropStep{Rate: 0.01, Alpha: 1, Rest: 1}.Scalars(), false),
	} {
		for _, n := range []int{1, 7, 9, 15, 17, 31, 5003} {
			sameOnAllPaths(t, fmt.Sprintf("%s, %d hostile numbers", name, n), step, func(rng *rand.Rand) [4][]float32 {
				return [4][]float32{hostile(rng, n), hostile(rng, n), hostile(rng, n), hostile(rng, n)}
			})
			sameOnAllPaths(t, fmt.Sprintf("%s, %d decaying moments", name, n), step, func(rng *rand.Rand) [4][]float32 {
				return [4][]float32{hostile(rng, n), sparse(rng, n), decaying(rng, n), decaying(rng, n)}
			})
		}
	}
}

// sameOnAllPaths tries a rule on weights, gradients and two moments.
func sameOnAllPaths(t *testing.T, name string, step ruleStep, operands func(rng *rand.Rand) [4][]float32) {
	t.Helper()
	run := func(path *routines) [4][]float32 {
		defer func(old *routines) { active = old }(active)
		active = path
		x := operands(newRand())
		step(x[0], x[1], x[2], x[3])
		return x
	}
	want := run(portable())
	for _, path := range available() {
		for i, got := range run(path) {
			sameBits(t, fmt.Sprintf("%s on %s, tensor %d", name, path.name, i), got, want[i])
		}
	}
}

// BenchmarkAdam compares Adam with Touch, which goes through memory the same way and
// computes nothing: with what memory gives a core. They take turns on short parts of tensors that
// fit into no cache, and the fastest tenth of the parts counts, so that other programs on the
// machine matter little.
func BenchmarkAdam(b *testing.B) {
	const n, part = 25_000_000, 128 << 10
	region, err := offheap.Alloc(4*4*n, true)
	if err != nil {
		b.Fatal(err)
	}
	defer region.Free()
	all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(region.Bytes()))), 4*n)
	for i := range all {
		all[i] = 0.01
	}
	var a Adam
	a.Set(optim.AdamStep{Rate: 1e-6, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, Bias1: 1, Bias2: 1, Decoupled: true}.Scalars(), 1, [2]bool{true, true})
	runs := []func(w, g, m, v []float32){
		func(w, g, m, v []float32) { a.Update(w, g, [2][]float32{m, v}) },
		active.touch,
	}
	times, at := make([][]time.Duration, len(runs)), 0
	for b.Loop() {
		for k, run := range runs {
			start := time.Now()
			run(all[at:][:part], all[n+at:][:part], all[2*n+at:][:part], all[3*n+at:][:part])
			times[k] = append(times[k], time.Since(start))
			at = (at + part) % (n - part)
		}
	}
	var rates [2]float64
	for k, list := range times {
		slices.Sort(list)
		rates[k] = TouchBytes * part / list[len(list)/10].Seconds() / 1e9
	}
	b.ReportMetric(rates[0], "GB/s")
	b.ReportMetric(rates[0]/rates[1], "of-memory")
}

func BenchmarkLion(b *testing.B) {
	const n = 8 << 20
	w, g, m := make([]float32, n), make([]float32, n), make([]float32, n)
	var o Lion
	o.Set(optim.LionStep{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}.Scalars(), 1, [2]bool{true})
	b.SetBytes(20 * n)
	for b.Loop() {
		o.Update(w, g, [2][]float32{m})
	}
}

func TestLion(t *testing.T) {
	eachPath(t, testLion)
}

func testLion(t *testing.T) {
	rng := newRand()
	const n = 50
	w, m := random(rng, n), random(rng, n)
	pw, pm := doubles(w), doubles(m)
	m[3], pm[3] = 0, 0
	for range 4 {
		g := random(rng, n)
		g[3] = 0 // neither a gradient nor a mean: no step
		var o Lion
		o.Set(optim.LionStep{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}.Scalars(), 0.5, [2]bool{})
		o.Update(w, g, [2][]float32{m})
		for i := range pw {
			d := 0.5 * float64(g[i])
			pw[i] *= 1 - 0.01*0.1
			if step := 0.9*pm[i] + 0.1*d; step != 0 {
				pw[i] -= math.Copysign(0.01, step)
			}
			pm[i] = 0.99*pm[i] + 0.01*d
		}
	}
	for i := range pw {
		near(t, "w", i, w[i], pw[i])
		near(t, "m", i, m[i], pm[i])
	}
}

// States are rounded to the bits of the plain definition on every path, from every position,
// also where numbers are not finite.
func TestRoundStates(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng, s := newRand(), op.StateStream(7, 1)
		for _, n := range []int{0, 1, 5, 31, 32, 33, 64, 100, 1027} {
			for _, position := range []uint64{0, 1, 2, 3, 4, 1<<34 + 5} {
				src, got := hostile(rng, n), make([]uint16, n)
				RoundStates(got, src, s, position)
				for i, f := range src {
					if want := s.RoundState(f, position+uint64(i)); got[i] != want {
						t.Fatalf("%x at %d, %d of %d, is %#x, want %#x", f, position, i, n, got[i], want)
					}
				}
			}
		}
	})
}

// Weights likewise.
func TestToBF16Randomly(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range []int{0, 1, 7, 15, 16, 17, 33, 64, 100, 1027} {
			for _, position := range []uint64{0, 1, 5, 1<<34 + 5, 1<<64 - 3} {
				src, got := hostile(rng, n), make([]uint16, n)
				ToBF16Randomly(got, src, 7, position)
				for i, f := range src {
					if want := op.RoundStochastic(f, 7, position+uint64(i)); got[i] != want {
						t.Fatalf("%x at %d, %d of %d, is %#x, want %#x", f, position, i, n, got[i], want)
					}
				}
			}
		}
	})
}

func BenchmarkRoundStates(b *testing.B) {
	src, dst := make([]float32, 1024), make([]uint16, 1024)
	b.SetBytes(4 * 1024)
	for b.Loop() {
		RoundStates(dst, src, 5, 8)
	}
}

func BenchmarkToBF16Randomly(b *testing.B) {
	src, dst := make([]float32, 1024), make([]uint16, 1024)
	for _, path := range Paths() {
		b.Run(path, func(b *testing.B) {
			before, _ := Choose(path)
			defer Choose(before)
			b.SetBytes(4 * 1024)
			for b.Loop() {
				ToBF16Randomly(dst, src, 5, 8)
			}
		})
	}
}
