package kernel

import (
	"math"
	"unsafe"
)

// Attention works on tiles of scores stored key by key with one query per column, so
// that what softmax does to the scores of a query is plain arithmetic down a column.

// columnMaxGo sets m = max(m, every row of s).
func columnMaxGo(m []float32, s *float32, step, rows int) {
	for i := range rows {
		for j, v := range unsafe.Slice(at(s, i*step), len(m)) {
			m[j] = max(m[j], v)
		}
	}
}

// columnExpGo sets s = e^(s - m) and adds every row of it to sum.
func columnExpGo(sum, m []float32, s *float32, step, rows int) {
	for i := range rows {
		row := unsafe.Slice(at(s, i*step), len(sum))
		for j, v := range row {
			row[j] = float32(math.Exp(float64(v - m[j])))
			sum[j] += row[j]
		}
	}
}

// columnGradGo sets d = scale·p·(d - delta).
func columnGradGo(delta []float32, d, p *float32, step, rows int, scale float32) {
	for i := range rows {
		row, weight := unsafe.Slice(at(d, i*step), len(delta)), unsafe.Slice(at(p, i*step), len(delta))
		for j := range row {
			row[j] = (row[j] - delta[j]) * weight[j] * scale
		}
	}
}
