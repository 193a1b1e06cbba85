package kernel

import (
	"slices"
	"unsafe"
)

// A Plane is what some lines of windows see of one sample's channels of one group, with zeros around and, for
// gradients of strided convolutions, between its places, so that no window has an edge. Places have Width
// elements, a multiple of PlaneCols; those behind the group's are zeros, or nobody's. Where channels are very few Runs
// keeps them together.
type Plane struct {
	From, To                 [3]int // places that are copied, and windows
	Kernel, Stride, Dilation [3]int
	Before, Apart            [3]int // zeros before the first place, below zero to leave places out; from place to place
	Channels, Taken          int    // of a place that is copied, and how many of them
	Lines                    int    // of windows, one behind the other, that a plane is for
	Runs                     bool   // places lie one behind the other without gaps: a line of a window is one run of memory
	Width                    int
	size                     [3]int
	offsets                  []int // of the runs of a window
	run                      int   // elements of each
}

// PlaneCols is how many channels are copied at once, and the fewest that are computed at once; planeRows is how many
// places are computed at once at most.
const (
	PlaneCols = 8
	planeRows = 12
)

// aliased is of how many elements the distance of places is a multiple where the places of a window fall into few sets of a first-level
// cache.
const aliased = 256

// planeWidths are how many channels may be computed at once.
var planeWidths = [...]int{PlaneCols, 16, mostPlaneCols}

const mostPlaneCols = 32

// PanelCols is how many of so many channels Convolve computes at once: they lie side by side in panels of weights.
func PanelCols(channels int) int {
	cols := PlaneCols
	for i, wider := range planeWidths[1:] {
		if cols >= channels || active.planes[i+1][planeRows] == nil {
			break
		}
		cols = wider
	}
	return cols
}

// The inner loops: a planeFunc computes h places, xStep apart, of cols channels
//
//	c[i*cStep+j] = add[j] + Σt Σk x[offsets[t]+i*xStep+k] · w[(t*each+k)*cols+j]     i < h, k < each, j < cols
//
// and a planeWeightsFunc adds to the sums of three places of a window and four channels of dy
//
//	sums[(i*3+t)*PlaneCols+j] += Σl Σp dy[l*dyLine+p*dyStep+i] · xt[l*xLine+p*xStep+j]    l < lines, p < n
//
// a runWeightsFunc to those of so many elements of a run and runCols channels of dy
//
//	sums[i*runCols+j] += Σl Σp x[l*xLine+p*xStep+i] · dy[l*dyLine+p*dyStep+j]    l < lines, p < n
//
// a runWeightsOfThreeFunc to those of shortRun elements of three runs, apart in x, whose sums are runTaps*runCols apart.
//
// A planeFillFunc copies PlaneCols channels of each group to its plane
//
//	to[p*toStep+g*step+j] = from[p*fromStep+g*PlaneCols+j]     p < n, g < groups
type (
	planeFunc             func(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
	planeFillFunc         func(to *float32, step, toStep int, from *float32, fromStep, groups, n int)
	runWeightsFunc        func(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
	runWeightsOfThreeFunc func(lines, n int, x *float32, apart, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
	planeWeightsFunc      func(lines, n int, x0, x1, x2 *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
)

// PlaneSums is how many sums a planeWeightsFunc has.
const (
	planeTaps, planeOuts = 3, 4
	planeSums            = planeTaps * planeOuts * PlaneCols
)

// A runWeightsFunc adds up to runTaps elements of a run.
const runTaps, runCols = planeTaps * PlaneCols, 16

// shortRun is up to how many elements the lines of a window have that are added three at a time.
const shortRun = 9

// Init computes what depends on the sizes.
func (p *Plane) Init() *Plane {
	for d, windows := range [3]int{1, p.Lines, p.To[2]} {
		p.size[d] = (windows-1)*p.Stride[d] + (p.Kernel[d]-1)*p.Dilation[d] + 1
	}
	along := p.Kernel[2]
	if p.Width, p.offsets, p.run = roundUp(p.Taken, PlaneCols), nil, p.Taken; p.Width%aliased == 0 {
		p.Width += 2 * PlaneCols
	}
	if p.Runs {
		p.Width, p.run, along = p.Taken, p.Kernel[2]*p.Taken, 1
	}
	for z := range p.Kernel[0] {
		for y := range p.Kernel[1] {
			for x := range along {
				p.offsets = append(p.offsets, p.place(z*p.Dilation[0], y*p.Dilation[1], x*p.Dilation[2]))
			}
		}
	}
	return p
}

// Offsets are where the places of a window lie behind its first.
func (p *Plane) Offsets() []int { return p.offsets }

// Line is where the first window of a line begins.
func (p *Plane) Line(i int) int { return p.place(0, i*p.Stride[1], 0) }

// place is where a place of the plane begins.
func (p *Plane) place(z, y, x int) int { return ((z*p.size[1]+y)*p.size[2] + x) * p.Width }

// inside are the runs of windows from z on that do not lie wholly before or behind the sample.
func (p *Plane) inside(z int) (from, to int) {
	each := len(p.offsets) / p.Kernel[0]
	for k := range p.Kernel[0] {
		if _, ok := p.source(0, z*p.Stride[0]+k*p.Dilation[0]); ok {
			if to == 0 {
				from = k * each
			}
			to = (k + 1) * each
		}
	}
	return from, to
}

// Size is how many elements a plane has, with those behind it that are read with the last.
func (p *Plane) Size() int {
	size := p.size[0] * p.size[1] * p.size[2] * p.Width
	if p.Runs {
		size += runTaps
	}
	return size
}

// Fill copies what n lines of windows from (z, y) on see, of a sample and so many groups that lie side by side,
// to planes that are step apart. Around the places of a line zeros must lie already; Fill leaves them alone.
func (p *Plane) Fill(planes []float32, step int, from []float32, groups, z, y, n int) {
	lines := (n-1)*p.Stride[1] + (p.Kernel[1]-1)*p.Dilation[1] + 1
	for i := range p.size[0] {
		fromZ, deep := p.source(0, z*p.Stride[0]+i)
		for j := range lines {
			to := planes[p.place(i, j, 0):]
			if fromY, high := p.source(1, y*p.Stride[1]+j); deep && high {
				p.fillLine(to, step, from[(fromZ*p.From[1]+fromY)*p.From[2]*p.Channels:], groups)
				continue
			}
			for g := range groups {
				clear(to[g*step:][:p.size[2]*p.Width])
			}
		}
	}
}

// source is which place is copied to a place of the plane, in one dimension.
func (p *Plane) source(d, at int) (int, bool) {
	at -= p.Before[d]
	return at / p.Apart[d], at >= 0 && at%p.Apart[d] == 0 && at/p.Apart[d] < p.From[d]
}

// fillLine copies a line of places.
func (p *Plane) fillLine(to []float32, step int, line []float32, groups int) {
	first := 0
	if p.Before[2] < 0 { // places that no window sees
		first = ceil(-p.Before[2], p.Apart[2])
	}
	n := min(p.From[2], ceil(p.size[2]-p.Before[2], p.Apart[2])) - first
	if n <= 0 {
		return
	}
	at, next := (p.Before[2]+first*p.Apart[2])*p.Width, p.Apart[2]*p.Width
	to, line = to[at:], line[first*p.Channels:]
	switch {
	case groups == 1 && next == p.Channels && p.Taken == p.Channels:
		copy(to, line[:n*next])
		return
	case p.Taken == PlaneCols:
		_, _ = to[(n-1)*next+(groups-1)*step+p.Taken-1], line[(n-1)*p.Channels+groups*p.Taken-1]
		active.planeFill(&to[0], step, next, &line[0], p.Channels, groups, n)
		return
	case p.Taken%PlaneCols == 0:
		_, _ = to[(n-1)*next+(groups-1)*step+p.Taken-1], line[(n-1)*p.Channels+groups*p.Taken-1]
		for g := range groups {
			active.planeFill(&to[g*step], PlaneCols, next, &line[g*p.Taken], p.Channels, p.Taken/PlaneCols, n)
		}
		return
	}
	for x := range n {
		for g := range groups {
			copy(to[x*next+g*step:][:p.Taken], line[x*p.Channels+g*p.Taken:])
		}
	}
}

// Convolve computes made channels of n lines of windows from z on: y has places cStep apart, at most cols channels of each, which
// PanelCols gave. Weights are [places channels cols]. Where fewer channels are wanted, room has a line of windows.
func (p *Plane) Convolve(y, plane, w, bias []float32, z, n, cStep, cols, made int, room []float32) {
	fs := &active.planes[slices.Index(planeWidths[:], cols)]
	var add *float32
	if bias != nil {
		add = &bias[0]
	}
	parts := ceil(p.To[2], planeRows)
	first, last := p.inside(z)
	if first == last { // one run of zeros
		last++
	}
	offsets, w := p.offsets[first:last], w[first*p.run*cols:]
	for line := range n {
		from := p.place(0, line*p.Stride[1], 0)
		to := y[line*p.To[2]*cStep:]
		for part := range parts {
			first, end := part*p.To[2]/parts, (part+1)*p.To[2]/parts
			c, step := &to[first*cStep], cStep
			if made < cols {
				c, step = &room[0], cols
			}
			fs[end-first](len(offsets), &offsets[0], p.run, &plane[from+first*p.Stride[2]*p.Width], p.Stride[2]*p.Width, &w[0], c, step, add)
			for i := first; i < end && made < cols; i++ {
				copy(to[i*cStep:][:made], room[(i-first)*cols:])
			}
		}
	}
}

// PlaneRoom is the room that Convolve needs.
const PlaneRoom = planeRows * mostPlaneCols

// Sums is how many sums AddWeights has for so many channels of dy.
func (p *Plane) Sums(made int) int {
	return p.Width / PlaneCols * ceil(made, planeOuts) * ceil(len(p.offsets), planeTaps) * planeSums
}

// AddWeights adds the gradients of weights of n lines of windows of one group. dy has a multiple of four channels.
func (p *Plane) AddWeights(sums, plane, dy []float32, n, dyStep, made int) {
	for k := 0; k < p.Width; k += PlaneCols {
		for o := 0; o < made; o += planeOuts {
			for t := 0; t < len(p.offsets); t += planeTaps {
				var x [planeTaps]*float32
				for i := range x {
					x[i] = &plane[p.offsets[min(t+i, len(p.offsets)-1)]+k]
				}
				active.planeWeights(n, p.To[2], x[0], x[1], x[2], p.Stride[2]*p.Width, p.place(0, p.Stride[1], 0), &dy[o], dyStep, p.To[2]*dyStep, &sums[0])
				sums = sums[planeSums:]
			}
		}
	}
}

// RunCols is how many of so many channels of dy AddRuns takes at once, 0 where a run is too long or too short for it: most
// of what is computed must be wanted.
func (p *Plane) RunCols(made int) int {
	switch {
	case p.run > runTaps || made%PlaneCols > 0:
		return 0
	case made%runCols == 0 && p.runWeights() != nil && p.run >= runTaps*3/8:
		return runCols
	case p.run >= runTaps*3/4:
		return PlaneCols
	}
	return 0
}

// runWeights adds the gradients of a whole run at once. It may be nil.
func (p *Plane) runWeights() runWeightsFunc {
	for _, f := range active.runWeights[min(p.run, runTaps+1):] {
		if f != nil {
			return f
		}
	}
	return nil
}

// RunSums is how many sums AddRuns has for so many channels of dy, of which RunCols gave cols.
func (p *Plane) RunSums(cols int) int {
	if cols == runCols {
		return len(p.offsets) * runTaps * runCols
	}
	return cols / planeOuts * len(p.offsets) * ceil(p.run, runTaps) * planeSums
}

// AddRuns is AddWeights of a plane of Runs, for cols channels of dy, of so many windows of n lines from z on.
func (p *Plane) AddRuns(sums, plane, dy []float32, z, n, windows, dyStep, cols int) {
	xStep, xLine, dyLine := p.Stride[2]*p.Width, p.Line(1), p.To[2]*dyStep
	from, to := p.inside(z)
	if cols == runCols {
		add, three, apart := p.runWeights(), active.runWeightsOfThree, p.place(0, p.Dilation[1], 0)
		for i := from; i < to; i++ {
			if three != nil && p.run <= shortRun && p.Kernel[1] == 3 {
				three(n, windows, &plane[p.offsets[i]], apart, xStep, xLine, &dy[0], dyStep, dyLine, &sums[i*runTaps*runCols])
				i += 2
				continue
			}
			add(n, windows, &plane[p.offsets[i]], xStep, xLine, &dy[0], dyStep, dyLine, &sums[i*runTaps*runCols])
		}
		return
	}
	each := ceil(p.run, runTaps) * planeSums
	for o := 0; o < cols; o += planeOuts {
		for i := from; i < to; i++ {
			own := sums[(o/planeOuts*len(p.offsets)+i)*each:]
			for first := 0; first < p.run; first += runTaps {
				x := plane[p.offsets[i]+first:]
				active.planeWeights(n, windows, &x[0], &x[PlaneCols], &x[2*PlaneCols], xStep, xLine, &dy[o], dyStep, dyLine, &own[first/runTaps*planeSums])
			}
		}
	}
}

// EachRunSum calls f with every sum of AddRuns: of channel o of dy, channel k of x and place t of the window.
func (p *Plane) EachRunSum(sums []float32, cols int, f func(o, k, t int, sum float32)) {
	if cols == runCols {
		for line := range p.offsets {
			for i, sum := range sums[line*runTaps*runCols:][:p.run*runCols] {
				at := i / runCols
				f(i%runCols, at%p.Taken, line*p.Kernel[2]+at/p.Taken, sum)
			}
		}
		return
	}
	for o := 0; o < cols; o += planeOuts {
		for line := range p.offsets {
			for first := 0; first < p.run; first += runTaps {
				for i, sum := range sums[:planeSums] {
					if at := first + i%runTaps; at < p.run {
						f(o+i/runTaps, at%p.Taken, line*p.Kernel[2]+at/p.Taken, sum)
					}
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
			planeGo(h, PlaneCols, unsafe.Slice(offsets, taps), each, x, xStep, w, c, cStep, add)
		}
	}
	return fs
}

func planeGo(h, cols int, offsets []int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32) {
	for i := range h {
		for j := range cols {
			var sum float32
			for t, offset := range offsets {
				for k := range each {
					sum += *at(x, offset+i*xStep+k) * *at(w, (t*each+k)*cols+j)
				}
			}
			if add != nil {
				sum += *at(add, j)
			}
			*at(c, i*cStep+j) = sum
		}
	}
}

func runWeightsGo(run, lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32) {
	for s := range run * runCols {
		var sum float32
		for l := range lines {
			for p := range n {
				sum += *at(x, l*xLine+p*xStep+s/runCols) * *at(dy, l*dyLine+p*dyStep+s%runCols)
			}
		}
		*at(sums, s) += sum
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

func planeFillGo(to *float32, step, toStep int, from *float32, fromStep, groups, n int) {
	for p := range n {
		for g := range groups {
			copy(unsafe.Slice(at(to, p*toStep+g*step), PlaneCols), unsafe.Slice(at(from, p*fromStep+g*PlaneCols), PlaneCols))
		}
	}
}
