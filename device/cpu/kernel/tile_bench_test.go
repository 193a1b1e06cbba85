package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkTile shows what the register tiles alone reach: the bound for products.
func BenchmarkTile(b *testing.B) {
	const k = 256
	x, y, z := make([]float32, 12*k), make([]float32, 32*k), make([]float32, 12*32)
	for _, r := range available() {
		for _, h := range r.heights {
			for name, f := range map[string]tileFunc{"cols": r.tileCols[h], "rows": r.tileRows[h]} {
				step := r.mr
				if name == "rows" {
					step = k
				}
				b.Run(fmt.Sprintf("%s/%s%d", r.name, name, h), func(b *testing.B) {
					for b.Loop() {
						for range 100 {
							f(k, &x[0], step, &y[0], r.nr, &z[0], r.nr, r.nr, nil, 0, fetch{})
						}
					}
					b.ReportMetric(200*k*float64(h*r.nr)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
