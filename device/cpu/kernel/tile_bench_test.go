package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkTile shows what the register tiles alone reach: the bound for matmuls.
func BenchmarkTile(b *testing.B) {
	const k, tiles = 128, 200
	x, y, z := make([]float32, maxRows*k), make([]float32, maxCols*k), make([]float32, maxRows*maxCols)
	pool := NewPool(1)
	defer pool.Close()
	defer func(old *routines) { active = old }(active)
	for _, r := range available() {
		active = r
		for _, h := range r.heights {
			for name, f := range map[string]tileFunc{"cols": r.tileCols[h], "rows": r.tileRows[h]} {
				step := r.mr
				if name == "rows" {
					step = k
				}
				b.Run(fmt.Sprintf("%s/%s%d", r.name, name, h), func(b *testing.B) {
					for b.Loop() {
						for range tiles {
							f(k, &x[0], step, &y[0], r.nr, &z[0], r.nr, r.nr, nil, 0, fetch{})
						}
					}
					reportRate(b, pool, 2*tiles*k*float64(h*r.nr))
				})
			}
		}
	}
}
