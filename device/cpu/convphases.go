package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// phaseColumns is up to how many channels all phases have together: they are computed side by side, each from the same
// places of dy.
const phaseColumns = 32

// byPhases says that places of x between the windows' first, each a phase, have so few channels together that the gradient
// is a convolution of dy without strides, with all phases as its channels: a matmul to windows and adding those up writes
// and reads many times as much memory.
func (v convolution) byPhases() bool {
	columns := volume(ints(v.Stride)) * int(v.C)
	return v.groups == 1 && v.Dilation == [3]int64{1, 1, 1} && v.taps > 1 && v.Stride != v.Dilation && columns > kernel.PlaneCols && columns <= phaseColumns
}

// phase is which windows a place i of x lies in, of one dimension: those before window i/stride+ahead, the first of which
// sees it at place first of the window, the others stride later each.
func (v convolution) phase(d, i int) (ahead, first int) {
	at := i + int(v.Padding[d])
	return at / int(v.Stride[d]), at % int(v.Stride[d])
}

// phases is a plane of dy whose windows are all places that the phases of a place of x need.
func (v convolution) phases() *kernel.Plane {
	one := [3]int{1, 1, 1}
	p := &kernel.Plane{From: ints(v.Out), Stride: one, Dilation: one, Apart: one, Channels: int(v.O), Taken: int(v.O)}
	for d := range p.To {
		stride, least, most := int(v.Stride[d]), int(v.Padding[d]), 0
		for i := range stride {
			ahead, first := v.phase(d, i)
			least = min(least, ahead-(int(v.Kernel[d])-1-first+stride)/stride+1)
			most = max(most, ahead)
		}
		p.To[d] = (int(v.In[d]) + stride - 1) / stride
		p.Before[d], p.Kernel[d] = -least, most-least+1
	}
	return cutLines(p, planesRoom)
}

// orderPhases puts the weights into the order of planes: [panels places O cols], zeros where a place has no part in a phase.
func (v convolution) orderPhases(to, w []float32, p *kernel.Plane, cols int) {
	clear(to)
	kinds, o := ints(v.Stride), int(v.O)
	for column := range volume(kinds) * v.each {
		i := column / v.each
		at := [3]int{i / kinds[2] / kinds[1], i / kinds[2] % kinds[1], i % kinds[2]}
		for t := range volume(p.Kernel) {
			place := [3]int{t / p.Kernel[2] / p.Kernel[1], t / p.Kernel[2] % p.Kernel[1], t % p.Kernel[2]}
			tap, inside := 0, true
			for d := range place {
				ahead, first := v.phase(d, at[d])
				k := first + (ahead-place[d]+p.Before[d])*kinds[d]
				tap, inside = tap*int(v.Kernel[d])+k, inside && k >= first && k < int(v.Kernel[d])
			}
			for c := 0; inside && c < o; c++ {
				to[((column/cols*volume(p.Kernel)+t)*o+c)*cols+column%cols] = w[(c*v.each+column%v.each)*v.taps+tap]
			}
		}
	}
}

// convInputPhases is the gradient of x by phases: a piece of work is some lines of windows of dy, each of which has as many
// lines of x as the stride.
func convInputPhases(c op.Call, v convolution, workers int) Program {
	p := v.phases()
	kinds := ints(v.Stride)
	columns := volume(kinds) * v.each
	cols := kernel.PanelCols(columns)
	panels, panel := (columns+cols-1)/cols, volume(p.Kernel)*int(v.O)*cols
	size, made := alignedFloats(p.Size()), alignedFloats(p.To[2]*columns)
	planes := &cleared{own: size + made + kernel.PlaneRoom, done: make([]bool, workers)}
	var dx, dy, w, ordered []float32
	order := rowsOf(1, 1, func(int, int, int) { v.orderPhases(ordered, w, p, cols) })
	parts := (p.To[1] + p.Lines - 1) / p.Lines
	work := &rows{n: int(v.B) * p.To[0] * parts, step: 1, do: func(worker, i, _ int) {
		sample, z, first := i/parts/p.To[0], i/parts%p.To[0], i%parts*p.Lines
		own := planes.of(worker)
		line, room := own[size:][:p.To[2]*columns], own[size+made:]
		n := min(p.Lines, p.To[1]-first)
		p.Fill(own, 0, dy[sample*volume(p.From)*int(v.O):], 1, z, first, n)
		for y := range n {
			for k := range panels {
				p.Convolve(line[k*cols:], own[p.Line(y):], ordered[k*panel:], nil, z, 1, columns, cols, min(cols, columns-k*cols), room)
			}
			v.spreadPhases(dx[sample*volume(ints(v.In))*v.each:], line, z, first+y)
		}
	}}
	weights := panels * panel
	return Program{Workspace: bytesOf(weights + workers*planes.own), Run: func(pool *kernel.Pool, l *device.Launch) {
		all := scratch(l)
		dy, w, dx, ordered = F32(l, 0), F32(l, 1), F32(l, 2), all[:weights]
		planes.start(all[weights:])
		order.start(pool)
		work.start(pool)
	}}
}

// spreadPhases copies all phases of a line of windows of dy to their lines of x.
func (v convolution) spreadPhases(dx, line []float32, z, y int) {
	kinds, wide := ints(v.Stride), int(v.In[2])*v.each
	run := kinds[2] * v.each
	columns := volume(kinds) * v.each
	for i := range kinds[0] * kinds[1] {
		toZ, toY := z*kinds[0]+i/kinds[1], y*kinds[1]+i%kinds[1]
		if toZ >= int(v.In[0]) || toY >= int(v.In[1]) {
			continue
		}
		to := dx[(toZ*int(v.In[1])+toY)*wide:][:wide]
		for from := line[i*run:]; len(to) > 0; to = to[min(run, len(to)):] {
			copy(to, from[:run])
			from = from[min(columns, len(from)):]
		}
	}
}
