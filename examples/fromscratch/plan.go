package main

// plan is the list of instructions of one iteration. It is data, so it can be counted
// and checked before anything runs. Every plan that runs to its end gives the same
// losses.
type plan []instruction

// instruction does one thing with one block. The loss counts as the last block.
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
	backward             // compute the gradients of the block's weights and of its input
	update               // update the weights on the host with the block's gradient
	free                 // free a buffer
)

// kind is what a buffer on the device holds.
type kind int

const (
	weight    kind = iota // the block's weights
	grad                  // gradient of the block's weights
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
func standard() (p plan) {
	for b := range blocks + 1 {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b})
	}
	for b := blocks; b >= 0; b-- {
		p = append(p, instruction{verb: backward, block: b}, instruction{verb: update, block: b}).free(b, work)
	}
	for b := range blocks + 1 {
		p = p.free(b, weight, grad, saved, input, inputGrad)
	}
	return p
}

// streamed holds the weights of one block at a time. Forward keeps only the inputs of
// the blocks. Backward copies each block to the device again and runs its forward again.
func streamed() (p plan) {
	for b := range blocks + 1 {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b}).free(b, weight, saved)
	}
	p = p.free(blocks+1, input)
	for b := blocks; b >= 0; b-- {
		p = append(p, instruction{verb: move, block: b}, instruction{verb: forward, block: b}).free(b+1, input)
		p = append(p, instruction{verb: backward, block: b}, instruction{verb: update, block: b})
		p = p.free(b, weight, grad, saved, input, work).free(b+1, inputGrad)
	}
	return p.free(0, inputGrad)
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

// size is the number of elements of a buffer. The batch and the loss take no memory here.
func (f buffer) size() int {
	switch {
	case f.block > blocks, f.block == blocks && f.kind != input && f.kind != inputGrad, f.block == 0 && f.kind == input:
		return 0
	case f.kind == weight || f.kind == grad:
		return 2 * C * F
	case f.kind == saved:
		return 2 * N * F
	case f.kind == work:
		return N * F
	}
	return N * C
}
