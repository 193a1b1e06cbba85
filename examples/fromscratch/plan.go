package main

// plan is what one iteration does, as data: it can be counted and checked before
// anything runs, and every plan that runs to its end gives the same losses.
type plan []instruction

// instruction is one thing to do with one block.
type instruction struct {
	do    verb
	block int
	what  kind // which of the block's buffers a free gives back
}

// verb is a word that plans are written in.
type verb int

const (
	move     verb = iota // copy the block's weights from the host to the device
	forward              // what enters the block becomes what enters the next
	backward             // the flow behind the block becomes the flow before it
	update               // send the block's gradient home, change the weights there
	free                 // give a buffer back
)

// kind is a class of bytes on the device.
type kind int

const (
	weight kind = iota // the block's params
	grad               // gradient of the block's params
	saved              // what the block's backward needs of its forward
	input              // [N,C] what enters the block
	flow               // [N,C] gradient of what enters the block
	work               // gradients inside the block, for the time of its backward
)

// buffer names a piece of device memory.
type buffer struct {
	kind  kind
	block int
}

// standard brings everything to the device, where it stays to the end.
func standard(head int) (p plan) {
	for b := 0; b <= head; b++ {
		p = append(p, instruction{do: move, block: b}, instruction{do: forward, block: b})
	}
	for b := head; b >= 0; b-- {
		p = append(p, instruction{do: backward, block: b}, instruction{do: update, block: b}).free(b, work)
	}
	for b := 0; b <= head; b++ {
		p = p.free(b, weight, grad, saved, input, flow)
	}
	return p
}

// streamed holds the weights of one block at a time. The forward saves only what enters
// each block; backward brings each block again, and runs its forward again.
func streamed(head int) (p plan) {
	for b := 0; b <= head; b++ {
		p = append(p, instruction{do: move, block: b}, instruction{do: forward, block: b}).free(b, weight, saved)
	}
	p = p.free(head+1, input)
	for b := head; b >= 0; b-- {
		p = append(p, instruction{do: move, block: b}, instruction{do: forward, block: b}).free(b+1, input)
		p = append(p, instruction{do: backward, block: b}, instruction{do: update, block: b})
		p = p.free(b, weight, grad, saved, input, work).free(b+1, flow)
	}
	return p
}

func (p plan) free(block int, kinds ...kind) plan {
	for _, k := range kinds {
		p = append(p, instruction{free, block, k})
	}
	return p
}

// effects lists the buffers that must be there for an instruction, and those it brings.
func (s instruction) effects() (reads, makes []buffer) {
	b := s.block
	switch s.do {
	case move:
		return nil, []buffer{{weight, b}}
	case forward:
		return []buffer{{weight, b}, {input, b}}, []buffer{{saved, b}, {input, b + 1}}
	case backward:
		return []buffer{{weight, b}, {input, b}, {saved, b}, {flow, b + 1}}, []buffer{{grad, b}, {flow, b}, {work, b}}
	case update:
		return []buffer{{grad, b}}, nil
	}
	return []buffer{{s.what, b}}, nil
}

// size is the number of elements of a buffer. The embedding reads ids and saves
// nothing, and the head makes the loss: those ends take no memory.
func (d dims) size(f buffer) int {
	n, head := d.B*d.T, d.L+1
	switch {
	case f.kind == weight || f.kind == grad:
		total := 0
		for _, p := range d.params(f.block) {
			total += p.size
		}
		return total
	case f.block == 0 || f.block > head:
		return 0
	case f.kind == saved && f.block == head:
		return n * (d.C + d.V)
	case f.block < head && (f.kind == saved || f.kind == work):
		return n*(3*d.C+2*d.H*d.D+2*d.K*d.D+3*d.F) + d.B*d.H*d.T*d.T
	}
	return n * d.C
}
