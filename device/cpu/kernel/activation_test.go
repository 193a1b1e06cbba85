package kernel

import (
	"math"
	"testing"

	"spillway/op"
)

// guarded returns n elements with a wall of marks behind them, and a check that the
// marks still stand.
func guarded(t *testing.T, n int) ([]float32, func()) {
	const mark, wall = 12345, 40
	x := make([]float32, n+wall)
	for i := range x {
		x[i] = mark
	}
	return x[:n:n], func() {
		t.Helper()
		for i, v := range x[n:] {
			if v != mark {
				t.Fatalf("wrote %v behind the end, at %d of %d", v, n+i, n)
			}
		}
	}
}

// ulps is the distance of got from want in units of the last place of want.
func ulps(got float32, want float64) float64 {
	w := math.Abs(want)
	unit := math.Float64frombits(math.Float64bits(w)&^(1<<52-1)) * 0x1p-23
	return math.Abs(float64(got)-want) / max(unit, 0x1p-149)
}

// sweep gives n numbers from lo to hi, evenly.
func sweep(lo, hi float64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(lo + (hi-lo)*float64(i)/float64(n-1))
	}
	return x
}

// The functions stay within one to three units in the last place.
func TestFunctionsAreAccurate(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		x := sweep(-30, 30, 100003)
		y := make([]float32, len(x))
		worst := func(name string, bound float64, want func(float64) float64, unit func(x, want float64) float64) {
			most, where := 0.0, float32(0)
			for i, v := range x {
				w := want(float64(v))
				if e := ulps(y[i], w) * unit(float64(v), w); e > most || math.IsNaN(e) {
					most, where = e, v
				}
			}
			t.Logf("%s: %.2f units in the last place at %v", name, most, where)
			if !(most <= bound) {
				t.Errorf("%s(%v) is off by %.2f units in the last place, want %v", name, where, most, bound)
			}
		}
		relative := func(_, _ float64) float64 { return 1 }
		Exp(y, x)
		worst("exp", 1, math.Exp, relative)
		Func(op.Sigmoid).Value(y, x)
		worst("sigmoid", 2.5, plainFuncs[op.Sigmoid].value, relative)
		Func(op.SiLU).Value(y, x)
		worst("silu", 3, plainFuncs[op.SiLU].value, relative)
		Func(op.Tanh).Value(y, x)
		worst("tanh", 2, math.Tanh, relative)
		// Below zero gelu is a small difference: only the error against x counts.
		against := func(x, want float64) float64 { return min(1, math.Abs(want)/max(math.Abs(x), 1e-9)) }
		Func(op.GELU).Value(y, x)
		worst("gelu", 2, plainFuncs[op.GELU].value, against)
		Func(op.GELUTanh).Value(y, x)
		worst("gelu_tanh", 2, plainFuncs[op.GELUTanh].value, against)
	})
}

func TestExpAtTheEnds(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{-inf, inf, 0, 88.72, 89.5, -87.5, -103, -200, 200, float32(math.NaN())}
	eachPath(t, func(t *testing.T) {
		y := make([]float32, len(x))
		Exp(y, x)
		for i, v := range x {
			want := math.Exp(float64(v))
			if float64(float32(want)) > math.MaxFloat32 {
				want = math.Inf(1)
			}
			same := math.IsNaN(want) && y[i] != y[i] || float64(y[i]) == want || ulps(y[i], want) <= 1
			if !same {
				t.Errorf("e^%v = %v, want %v", v, y[i], want)
			}
		}
	})
}

// All four loops of all functions against the formulas, with tails of every length.
func TestActivations(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for f, p := range plainFuncs[op.ReLU:] {
			for n := range 40 {
				f := Func(f) + Func(op.ReLU)
				x, y, dy := random(rng, n), random(rng, n), random(rng, n)
				value, check1 := guarded(t, n)
				times, check2 := guarded(t, n)
				slope, check3 := guarded(t, n)
				dgate, check4 := guarded(t, n)
				dup, check5 := guarded(t, n)
				f.Value(value, x)
				f.Times(times, x, y)
				f.SlopeTimes(slope, x, dy)
				f.GatedGrad(dgate, dup, x, y, dy)
				for i := range n {
					v, s := p.value(float64(x[i])), p.slope(float64(x[i]))
					for name, c := range map[string][2]float64{
						"value": {float64(value[i]), v},
						"times": {float64(times[i]), v * float64(y[i])},
						"slope": {float64(slope[i]), s * float64(dy[i])},
						"dgate": {float64(dgate[i]), s * float64(dy[i]) * float64(y[i])},
						"dup":   {float64(dup[i]), v * float64(dy[i])},
					} {
						if math.Abs(c[0]-c[1]) > 5e-7*(1+math.Abs(c[1])) || math.IsNaN(c[0]) {
							t.Fatalf("func %d, %s of %d: %v, want %v at x = %v", f, name, n, c[0], c[1], x[i])
						}
					}
				}
				check1()
				check2()
				check3()
				check4()
				check5()
			}
		}
	})
}

// The slopes in plainFuncs are the derivatives of the values next to them.
func TestSlopesAreDerivatives(t *testing.T) {
	for f, p := range plainFuncs[op.ReLU:] {
		for _, x := range []float64{-3, -1, -0.1, 0.2, 0.9, 4} {
			const h = 1e-5
			want := (p.value(x+h) - p.value(x-h)) / (2 * h)
			if got := p.slope(x); math.Abs(got-want) > 1e-8 {
				t.Errorf("func %d: slope at %v is %v, differences give %v", f, x, got, want)
			}
		}
	}
}
