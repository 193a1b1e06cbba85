package kernel

import "unsafe"

// A depthwiseFunc convolves DepthwiseLanes channels of h places, each channel by itself: the places of a
// window and their weights are at pairs of offsets.
//
//	c[i*cStep+j] = add[j] + Σt x[offsets[t][0]+i*step+j] · w[offsets[t][1]+j]     i < h
type depthwiseFunc func(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)

// DepthwiseLanes is how many channels are convolved at once.
const DepthwiseLanes = 8

// Depthwise convolves all channels, a multiple of DepthwiseLanes, of n places that lie side by side in y,
// and whose windows are step apart in x. Offsets hold at least one pair. bias may be nil.
func Depthwise(y []float32, n, channels int, x []float32, step int, w []float32, offsets [][2]int, bias []float32) {
	for first := 0; first < n; {
		h := min(ceil(n-first, ceil(n-first, planeRows)), n-first)
		for j := 0; j < channels; j += DepthwiseLanes {
			var add *float32
			if bias != nil {
				add = &bias[j]
			}
			active.depthwise[h](len(offsets), unsafe.SliceData(offsets), &x[first*step+j], step, &w[j], &y[first*channels+j], channels, add)
		}
		first += h
	}
}

// depthwiseGo are the plain functions by their number of places.
func depthwiseGo() (fs [planeRows + 1]depthwiseFunc) {
	for h := range fs {
		fs[h] = func(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32) {
			for i := range h {
				for j := range DepthwiseLanes {
					var sum float32
					if add != nil {
						sum = *at(add, j)
					}
					for _, o := range unsafe.Slice(offsets, taps) {
						sum += *at(x, o[0]+i*step+j) * *at(w, o[1]+j)
					}
					*at(c, i*cStep+j) = sum
				}
			}
		}
	}
	return fs
}
