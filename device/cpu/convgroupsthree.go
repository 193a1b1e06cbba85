package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// byGroupsThree says that a convolution has groups of as many channels of x as of y, several of which fill a vector, windows of 3 × 3 places
// side by side that move by one, and this CPU convolves them some lines at a time.
func (v convolution) byGroupsThree() bool {
	const lanes = kernel.GroupLanes
	return kernel.HasGroupsThree() && v.threeByThree() && v.each > 1 && v.each == v.made && lanes%v.each == 0 && v.C%lanes == 0
}

// groupsOf are the arguments of the workers.
func (t *threes) groupsOf(each, workers int) []kernel.GroupsThree {
	args := make([]kernel.GroupsThree, workers)
	for i := range args {
		args[i].Each, args[i].Vectors = each, t.channels/kernel.GroupLanes
	}
	return args
}

// convGroupsThree is a convolution of pieces, or its gradient of x, whose windows are in reverse order and whose channels of x and y are changed.
func convGroupsThree(c op.Call, v convolution, workers int) Program {
	back := c.Kind == op.ConvInput
	t := v.threes(back, workers)
	args := t.groupsOf(v.each, workers)
	weights, line := alignedFloats(v.weights()), t.from[2]*t.channels
	var x, y, w, bias, ordered []float32
	order := rowsOf(v.O, int64(v.each*v.taps), func(_, from, to int) {
		for o := from; o < to; o++ {
			v.orderGroupsThree(ordered, w, o, back)
		}
	})
	work := rowsOf(int64(t.pieces()), int64(kernel.ThreeRows*line*v.taps*v.each), func(worker, from, to int) {
		for i := from; i < to; i++ {
			a := &args[worker]
			three, lines := t.piece(worker, i, x, y)
			a.Three, a.W, a.Bias = *three, &ordered[0], nil
			if bias != nil {
				a.Bias = &bias[0]
			}
			a.Convolve(lines)
		}
	})
	return Program{Workspace: bytesOf(weights + line), Run: func(pool *kernel.Pool, l *device.Launch) {
		x, w, y, bias = F32(l, 0), F32(l, 1), F32(l, len(c.In)), nil
		ordered, t.zeros = scratch(l), scratch(l)[weights:][:line]
		clear(t.zeros)
		if c.Attr.Bias {
			bias = F32(l, 2)
		}
		order.start(pool)
		work.start(pool)
	}}
}

// orderGroupsThree puts the weights of a channel of y into the order of GroupsThree.
func (v convolution) orderGroupsThree(to, w []float32, o int, back bool) {
	for k := range v.each {
		line := (*[9]float32)(w[(o*v.each+k)*9:])
		lane, other := o, k
		if back {
			lane, other = o/v.each*v.each+k, o%v.each
		}
		at := to[v.groupsThreeAt(lane, other):]
		for tap, f := range line {
			if back {
				tap = 8 - tap
			}
			at[tap*kernel.GroupLanes] = f
		}
	}
}

// groupsThreeAt is where the first place of a window lies of a channel in a lane and another of its group, see kernel.GroupsThree.
func (v convolution) groupsThreeAt(lane, other int) int {
	const lanes = kernel.GroupLanes
	return (lane/lanes*v.each+other)*9*lanes + lane%lanes
}

// aliased is of how many bytes the distance of places is a multiple where all places of a line fall into so few sets of a first-level cache
// that channels of a group, one after the other, find nothing of it there.
const aliased = 2 << 10

// convGroupsThreeWeight is the gradient of weights: a piece of work is some vectors of channels, of all samples.
func convGroupsThreeWeight(c op.Call, v convolution, workers int) Program {
	const lanes = kernel.GroupLanes
	t := v.threes(false, workers)
	args := t.groupsOf(v.each, workers)
	vectors, sum, line := t.channels/lanes, v.each*9*lanes, t.from[2]*t.channels
	room, gathers := alignedFloats(kernel.GatherRoom(t.from[2], t.to[2])), 4*t.channels%aliased == 0
	var x, dy, dw, sums, rooms []float32
	work := &rows{n: vectors, step: max(1, vectors/workers)}
	work.do = func(worker, from, to int) {
		own := sums[from*sum : to*sum]
		clear(own)
		for i := range t.pieces() {
			a := &args[worker]
			three, lines := t.piece(worker, i, x[from*lanes:], dy[from*lanes:])
			a.Three, a.Sums, a.Vectors = *three, &own[0], to-from
			if gathers {
				a.AddGathered(lines, rooms[worker*room:][:room])
			} else {
				a.AddWeights(lines)
			}
		}
		for channel := from * lanes; channel < to*lanes; channel++ {
			for o := range v.each {
				line := (*[9]float32)(dw[((channel/v.each*v.each+o)*v.each+channel%v.each)*9:])
				for tap := range line {
					storeGrad(&line[tap], sums[v.groupsThreeAt(channel, o)+tap*lanes], c.Attr.Accumulate)
				}
			}
		}
	}
	return work.program(bytesOf(vectors*sum+line+workers*room), func(l *device.Launch) {
		x, dy, dw, sums = F32(l, 0), F32(l, 1), F32(l, 2), scratch(l)
		t.zeros, rooms = scratch(l)[vectors*sum:][:line], scratch(l)[vectors*sum+line:]
		clear(t.zeros)
	})
}
