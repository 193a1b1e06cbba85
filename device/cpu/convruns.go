package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// runChannels is up to how many channels a convolution without groups is computed by runs: images, and sound.
// Windows of so few channels are copied slowly, and matmuls copy each place as often as windows see it.
const runChannels = 4

// byRuns says that the lines of a window are runs of memory, few elements long, which are read as they lie in
// planes with zeros around.
func (v convolution) byRuns() bool {
	return v.groups == 1 && v.C <= runChannels && v.Dilation[2] == 1 && v.Stride[2] < v.Kernel[2] && v.plane(false).RunCols(int(v.O)) > 0
}

// runWindows is how many windows are taken at once at most, of a line or of several, with up to runGradients elements of dy: these stay
// in the caches for all lines of a window and all channels.
const runWindows, runGradients = 112, 32 << 10

// runParts is into how many parts planes are cut at most, which have sums of their own, and runPart how many windows each has at
// least where there are more than two: sums of small convolutions would take more memory than what is summed.
const runParts, runPart = 16, 2048

// convRunsWeight is the gradient of weights by runs: a piece of work is a part of the planes, and the sums of all parts are then added
// in order.
func convRunsWeight(c op.Call, v convolution, workers int) Program {
	p := v.plane(false)
	made, cols := int(v.O), p.RunCols(int(v.O))
	size, each, vectors := oddLines(p.Size()), alignedFloats(p.RunSums(cols)), made/cols
	lines := (p.To[1] + p.Lines - 1) / p.Lines
	items := int(v.B) * p.To[0] * lines
	most := max(min(runWindows, runGradients/made), 1)
	cuts := min((runParts+items-1)/items, (p.To[2]+most-1)/most) // of lines, where there are few
	items *= cuts
	parts, together := min(runParts, items, max(int(v.B)*volume(p.To)/runPart, 2)), max(most/p.To[2], 1)
	planes := &cleared{own: size, done: make([]bool, workers)}
	var x, dy, dw, partial []float32
	addLines := func(sums, plane, dy []float32, z, n, cut int) {
		end := (cut + 1) * p.To[2] / cuts
		for w := cut * p.To[2] / cuts; w < end; w += most {
			windows := min(most, end-w)
			for k := range vectors {
				p.AddRuns(sums[k*each:], plane[w*p.Stride[2]*p.Width:], dy[w*made+k*cols:], z, n, windows, made, cols)
			}
		}
	}
	work := &rows{n: parts, step: 1, do: func(worker, part, _ int) {
		plane, sums := planes.of(worker), partial[part*vectors*each:][:vectors*each]
		clear(sums)
		for item := part * items / parts; item < (part+1)*items/parts; item++ {
			i, first := item/cuts/lines, item/cuts%lines*p.Lines
			n := min(p.Lines, p.To[1]-first)
			p.Fill(plane, size, x[i/p.To[0]*volume(p.From)*p.Channels:], 1, i%p.To[0], first, n)
			for line := 0; line < n; line += together {
				addLines(sums, plane[p.Line(line):], dy[(i*p.To[1]+first+line)*p.To[2]*made:], i%p.To[0], min(together, n-line), item%cuts)
			}
		}
	}}
	finish := &rows{n: vectors, step: 1, do: func(_, k, _ int) {
		sums := partial[k*each:][:each]
		for part := 1; part < parts; part++ {
			kernel.Add(sums, sums, partial[(part*vectors+k)*each:][:each])
		}
		p.EachRunSum(sums, cols, func(o, channel, t int, sum float32) {
			storeGrad(&dw[((k*cols+o)*v.each+channel)*v.taps+t], sum, c.Attr.Accumulate)
		})
	}}
	return Program{Workspace: bytesOf(parts*vectors*each + workers*planes.own), Run: func(pool *kernel.Pool, l *device.Launch) {
		x, dy, dw, partial = F32(l, 0), F32(l, 1), F32(l, 2), scratch(l)
		planes.start(partial[parts*vectors*each:])
		work.start(pool)
		finish.start(pool)
	}}
}
