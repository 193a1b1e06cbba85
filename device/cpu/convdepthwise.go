package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// byLines says that a depthwise convolution, or its gradient of x, is computed line by line: whole vectors of
// channels, and windows that lie side by side.
func (v convolution) byLines(back bool) bool {
	return v.C%kernel.DepthwiseLanes == 0 && (!back || v.Stride == [3]int64{1, 1, 1})
}

// depthwiseLines keeps places of a line in registers while their windows run. The places at its ends, whose
// windows lie partly outside, come one by one.
func depthwiseLines(c op.Call, v convolution, workers int) Program {
	t, back := v.tiles(false), c.Kind == op.ConvInput
	if back {
		t = v.tiles(true)
	}
	stride, dilation, size := ints(v.Stride), ints(v.Dilation), ints(v.Kernel)
	channels, taps := int(v.C), v.taps
	var x, y, w, bias []float32
	offsets := make([][2]int, workers*taps)
	// see lists the places of a window that lie inside, of a line at (z, y) of a sample; x is its first column.
	see := func(to [][2]int, top [3]int) [][2]int {
		for k := range taps {
			z, y, x := top[0]+k/(size[1]*size[2])*dilation[0], top[1]+k/size[2]%size[1]*dilation[1], top[2]+k%size[2]*dilation[2]
			if z < 0 || z >= t.from[0] || y < 0 || y >= t.from[1] || x < 0 || x >= t.from[2] {
				continue
			}
			tap := k
			if back {
				tap = taps - 1 - k
			}
			to = append(to, [2]int{((z*t.from[1]+y)*t.from[2] + x) * channels, tap * channels})
		}
		return to
	}
	reach := dilation[2] * (size[2] - 1)
	lines := t.to[0] * t.to[1]
	line := func(worker, i int) {
		own := offsets[worker*taps:][:0:taps]
		sample := x[i/lines*t.from[0]*t.from[1]*t.from[2]*channels:]
		to := y[i*t.to[2]*channels:]
		top := [3]int{i%lines/t.to[1]*stride[0] - t.before[0], i%t.to[1]*stride[1] - t.before[1], 0}
		for ow := 0; ow < t.to[2]; {
			top[2] = ow*stride[2] - t.before[2]
			n := 1
			if inside := t.from[2] - reach - top[2]; top[2] >= 0 && inside > 0 { // windows from here to the last inside
				n = min((inside+stride[2]-1)/stride[2], t.to[2]-ow)
			}
			if see := see(own, top); len(see) > 0 {
				kernel.Depthwise(to[ow*channels:], n, channels, sample, stride[2]*channels, w, see, bias)
			} else if bias != nil {
				copy(to[ow*channels:][:channels], bias)
			} else {
				clear(to[ow*channels:][:channels])
			}
			ow += n
		}
	}
	work := rowsOf(int64(t.samples*lines), int64(t.to[2]*channels*taps), func(worker, from, to int) {
		for i := from; i < to; i++ {
			line(worker, i)
		}
	})
	return work.program(bytesOf(v.weights()), func(l *device.Launch) {
		x, y, w, bias = F32(l, 0), F32(l, len(c.In)), scratch(l), nil
		if c.Attr.Bias {
			bias = F32(l, 2)
		}
		for k, given := 0, F32(l, 1); k < channels; k++ {
			for t := range taps {
				w[t*channels+k] = given[k*taps+t]
			}
		}
	})
}
