package kernel

import "unsafe"

// A Plane is one sample's channels of one group, with zeros around and, for gradients of strided
// convolutions, between its places, so that no window has an edge. Places have Width elements, a multiple
// of PlaneCols; the channels behind the group's are zeros.
type Plane struct {
	From, To                 [3]int // places that are copied, and windows
	Kernel, Stride, Dilation [3]int
	Before, Apart            [3]int // zeros before the first place, below zero to leave places out; from place to place
	Channels, Taken          int    // of a place that is copied, and how many of them
	Width                    int
	size                     [3]int
	offsets                  []int
}

// PlaneCols is how many channels are computed at once, planeRows how many places at most.
const (
	PlaneCols = 8
	planeRows = 12
)

// The inner loops: a planeFunc computes h places, xStep apart, of PlaneCols channels
//
//	c[i*cStep+j] = add[j] + Σt Σk x[offsets[t]+i*xStep+k] · w[(t*each+k)*PlaneCols+j]     i < h, k < each
//
// and a planeWeightsFunc adds to the sums of three places of a window and four channels of dy
//
//	sums[(i*3+t)*PlaneCols+j] += Σl Σp dy[l*dyLine+p*dyStep+i] · xt[l*xLine+p*xStep+j]    l < lines, p < n
type (
	planeFunc        func(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
	planeWeightsFunc func(lines, n int, x0, x1, x2 *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
)

// PlaneSums is how many sums a planeWeightsFunc has.
const (
	planeTaps, planeOuts = 3, 4
	planeSums            = planeTaps * planeOuts * PlaneCols
)

// Init computes what depends on the sizes.
func (p *Plane) Init() *Plane {
	for d := range p.size {
		p.size[d] = (p.To[d]-1)*p.Stride[d] + (p.Kernel[d]-1)*p.Dilation[d] + 1
	}
	p.Width = roundUp(p.Taken, PlaneCols)
	for z := range p.Kernel[0] {
		for y := range p.Kernel[1] {
			for x := range p.Kernel[2] {
				p.offsets = append(p.offsets, p.place(z*p.Dilation[0], y*p.Dilation[1], x*p.Dilation[2]))
			}
		}
	}
	return p
}

// place is where a place of the plane begins.
func (p *Plane) place(z, y, x int) int { return ((z*p.size[1]+y)*p.size[2] + x) * p.Width }

// Size is how many elements a plane has.
func (p *Plane) Size() int { return p.size[0] * p.size[1] * p.size[2] * p.Width }

// octet is PlaneCols elements, in a form that Go copies by registers.
type octet struct{ a, b, c, d uint64 }

// Fill copies a group's channels of a sample.
func (p *Plane) Fill(plane, from []float32) {
	clear(plane[:p.Size()])
	for z := range p.From[0] {
		for y := range p.From[1] {
			toZ, toY := p.Before[0]+z*p.Apart[0], p.Before[1]+y*p.Apart[1]
			if toZ < 0 || toZ >= p.size[0] || toY < 0 || toY >= p.size[1] {
				continue
			}
			line, to := from[(z*p.From[1]+y)*p.From[2]*p.Channels:], plane[p.place(toZ, toY, 0):]
			for x := range p.From[2] {
				at := p.Before[2] + x*p.Apart[2]
				if at < 0 || at >= p.size[2] {
					continue
				}
				if p.Taken == PlaneCols {
					_, _ = to[at*p.Width+PlaneCols-1], line[x*p.Channels+PlaneCols-1]
					*(*octet)(unsafe.Pointer(&to[at*p.Width])) = *(*octet)(unsafe.Pointer(&line[x*p.Channels]))
				} else {
					copy(to[at*p.Width:][:p.Taken], line[x*p.Channels:])
				}
			}
		}
	}
}

// Convolve computes channels of all windows: y has them cStep apart, at most PlaneCols. Weights are
// [places channels PlaneCols]. Where fewer channels are wanted, room has a line of windows.
func (p *Plane) Convolve(y, plane, w, bias []float32, cStep, cols int, room []float32) {
	r := active
	var add *float32
	if bias != nil {
		add = &bias[0]
	}
	parts := ceil(p.To[2], planeRows)
	for line := range p.To[0] * p.To[1] {
		from := p.place(line/p.To[1]*p.Stride[0], line%p.To[1]*p.Stride[1], 0)
		to := y[line*p.To[2]*cStep:]
		for part := range parts {
			first, end := part*p.To[2]/parts, (part+1)*p.To[2]/parts
			c, step := &to[first*cStep], cStep
			if cols < PlaneCols {
				c, step = &room[0], PlaneCols
			}
			r.planes[end-first](len(p.offsets), &p.offsets[0], p.Taken, &plane[from+first*p.Stride[2]*p.Width], p.Stride[2]*p.Width, &w[0], c, step, add)
			for i := first; i < end && cols < PlaneCols; i++ {
				copy(to[i*cStep:][:cols], room[(i-first)*PlaneCols:])
			}
		}
	}
}

// PlaneRoom is the room that Convolve needs.
const PlaneRoom = planeRows * PlaneCols

// Sums is how many sums AddWeights has for so many channels of dy.
func (p *Plane) Sums(made int) int {
	return p.Width / PlaneCols * ceil(made, planeOuts) * ceil(len(p.offsets), planeTaps) * planeSums
}

// AddWeights adds the gradients of weights of one sample and group. dy has a multiple of four channels.
func (p *Plane) AddWeights(sums, plane, dy []float32, dyStep, made int) {
	for k := 0; k < p.Width; k += PlaneCols {
		for o := 0; o < made; o += planeOuts {
			for t := 0; t < len(p.offsets); t += planeTaps {
				var x [planeTaps][]float32
				for i := range x {
					x[i] = plane[p.offsets[min(t+i, len(p.offsets)-1)]+k:]
				}
				for z := range p.To[0] {
					at := p.place(z*p.Stride[0], 0, 0)
					active.planeWeights(p.To[1], p.To[2], &x[0][at], &x[1][at], &x[2][at], p.Stride[2]*p.Width, p.place(0, p.Stride[1], 0),
						&dy[z*p.To[1]*p.To[2]*dyStep+o], dyStep, p.To[2]*dyStep, &sums[0])
				}
				sums = sums[planeSums:]
			}
		}
	}
}

// EachSum calls f with every sum: of channel o of dy, channel k of x and place t of the window.
func (p *Plane) EachSum(sums []float32, made int, f func(o, k, t int, sum float32)) {
	for first := 0; first < p.Width; first += PlaneCols {
		for o := 0; o < made; o += planeOuts {
			for t := 0; t < len(p.offsets); t += planeTaps {
				for i, sum := range sums[:planeSums] {
					place, k := t+i/PlaneCols%planeTaps, first+i%PlaneCols
					if place < len(p.offsets) && k < p.Taken {
						f(o+i/PlaneCols/planeTaps, k, place, sum)
					}
				}
				sums = sums[planeSums:]
			}
		}
	}
}

// planesGo are the plain functions by their number of places.
func planesGo() (fs [planeRows + 1]planeFunc) {
	for h := range fs {
		fs[h] = func(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32) {
			planeGo(h, unsafe.Slice(offsets, taps), each, x, xStep, w, c, cStep, add)
		}
	}
	return fs
}

func planeGo(h int, offsets []int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32) {
	for i := range h {
		var sum [PlaneCols]float32
		for t, offset := range offsets {
			for k := range each {
				v := *at(x, offset+i*xStep+k)
				for j := range sum {
					sum[j] += v * *at(w, (t*each+k)*PlaneCols+j)
				}
			}
		}
		for j, v := range sum {
			if add != nil {
				v += *at(add, j)
			}
			*at(c, i*cStep+j) = v
		}
	}
}

func planeWeightsGo(lines, n int, x0, x1, x2 *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32) {
	var sum [planeSums]float32
	for l := range lines {
		for p := range n {
			for s := range sum {
				t, i, j := s/PlaneCols%planeTaps, s/PlaneCols/planeTaps, s%PlaneCols
				sum[s] += *at(dy, l*dyLine+p*dyStep+i) * *at([planeTaps]*float32{x0, x1, x2}[t], l*xLine+p*xStep+j)
			}
		}
	}
	for s, v := range sum {
		*at(sums, s) += v
	}
}
