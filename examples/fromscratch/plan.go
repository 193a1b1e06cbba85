package main

// plan is the list of instructions of one iteration. It is data, so it can be counted
// and checked before anything runs. Every plan that runs to its end gives the same
// losses.
type plan []instruction

// instruction does one thing with one block.
type instruction struct {
	verb  verb
	block int
	kind  kind // which of the block's buffers a free gives back
}

// verb says what an instruction does.
type verb int

const (
	move     verb = iota // copy the block's weights from the host to the device
	forward              // compute the input of the next block from the input of this one
	backward             // compute the gradients of the block's params and of its input
	update               // copy the block's gradient to the host and update the weights there
	free                 // free a buffer
)

// kind is what a buffer on the device holds.
type kind int

const (
	weight    kind = iota // the block's params
	grad                  // gradient of the block's params
	saved                 // activations that the block's backward needs
	input                 // [N,C] input of the block
	inputGrad             // [N,C] gradient of the block's input
	work                  // gradients inside the block, during its backward
)

// buffer names a piece of device memory.
type buffer struct {
	kind  kind
	block int
}

// standard brings everything to the device and keeps it there to the end.
func standard(head int) (p plan) {
	for b := 0; b <= head; b++ {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b})
	}
	for b := head; b >= 0; b-- {
		p = append(p, instruction{verb: backward, block: b}, instruction{verb: update, block: b}).free(b, work)
	}
	for b := 0; b <= head; b++ {
		p = p.free(b, weight, grad, saved, input, inputGrad)
	}
	return p
}

// streamed holds the weights of one block at a time. Forward keeps only the inputs of
// the blocks. Backward copies each block to the device again and runs its forward
// again.
func streamed(head int) (p plan) {
	for b := 0; b <= head; b++ {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b}).free(b, weight, saved)
	}
	p = p.free(head+1, input)
	for b := head; b >= 0; b-- {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b}).free(b+1, input)
		p = append(p, instruction{verb: backward, block: b}, instruction{verb: update, block: b})
		p = p.free(b, weight, grad, saved, input, work).free(b+1, inputGrad)
	}
	return p
}

func (p plan) free(block int, kinds ...kind) plan {
	for _, k := range kinds {
		p = append(p, instruction{free, block, k})
	}
	return p
}

// effects lists the buffers that an instruction reads and those that it makes.
func (s instruction) effects() (reads, makes []buffer) {
	b := s.block
	switch s.verb {
	case move:
		return nil, []buffer{{weight, b}}
	case forward:
		return []buffer{{weight, b}, {input, b}}, []buffer{{saved, b}, {input, b + 1}}
	case backward:
		return []buffer{{weight, b}, {input, b}, {saved, b}, {inputGrad, b + 1}}, []buffer{{grad, b}, {inputGrad, b}, {work, b}}
	case update:
		return []buffer{{grad, b}}, nil
	}
	return []buffer{{s.kind, b}}, nil
}

// size is the number of elements of a buffer. The embedding has only ids as input and
// saves nothing, and the head's result is the loss: these take no memory.
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
