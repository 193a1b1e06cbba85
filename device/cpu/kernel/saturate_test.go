package kernel

import "testing"

// Every chain adds one a round: its sum counts the rounds that really ran.
func TestSaturateDoesWhatItCounts(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		const rounds = 1001
		sums := make([]float32, active.chains)
		active.saturate(rounds, &sums[0])
		for i, sum := range sums {
			if sum != rounds {
				t.Fatalf("chain %d of %d added %v, want %d", i, len(sums), sum, rounds)
			}
		}
		pool := NewPool(3)
		defer pool.Close()
		if got, want := Saturate(pool, rounds), 2.0*rounds*float64(active.chains)*3*saturationPieces; got != want {
			t.Errorf("%v operations, want %v", got, want)
		}
	})
}
