package kernel

import "testing"

// Every element is touched once, whatever the length.
func TestTouch(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		for _, n := range append(lengths(), 3*touchedAtOnce+7, 100*touchedAtOnce) {
			rng := newRand()
			w, g, m, v := random(rng, n), random(rng, n), random(rng, n), random(rng, n)
			want := [3][]float32{append([]float32(nil), w...), append([]float32(nil), m...), append([]float32(nil), v...)}
			touchGo(want[0], g, want[1], want[2])
			Touch(pool, w, g, m, v)
			for i, got := range [][]float32{w, m, v} {
				sameBits(t, "touched", got, want[i])
			}
		}
	})
}
