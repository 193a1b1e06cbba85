package main

import "fmt"

// device has limited memory. Without a host it makes a dry run: it counts buffers, but
// does not allocate or compute.
type device struct {
	host              *host
	memory            map[buffer][]float64
	limit, used, peak int     // elements; a limit of 0 means none
	loss              float64 // of the last forward of the loss
}

// iterate executes the plan and returns the loss before its updates. At the start there
// are the batch and the gradient of the loss by itself, which is 1. At the end every
// buffer must have been freed.
func (v *device) iterate(p plan) (float64, error) {
	v.memory = map[buffer][]float64{{input, 0}: nil, {inputGrad, blocks + 1}: nil}
	if v.host != nil {
		v.memory[buffer{input, 0}] = v.host.batch
	}
	for i, s := range p {
		if err := v.execute(s); err != nil {
			return 0, fmt.Errorf("instruction %d of %d, %+v: %w", i, len(p), s, err)
		}
	}
	if v.used != 0 {
		return 0, fmt.Errorf("the plan of %d instructions leaves %d elements on the device; free them", len(p), v.used)
	}
	return v.loss, nil
}

func (v *device) execute(s instruction) error {
	reads, makes := s.effects()
	for _, f := range reads {
		if _, ok := v.memory[f]; !ok {
			return fmt.Errorf("%+v is not on the device", f)
		}
	}
	for _, f := range makes {
		if err := v.alloc(f); err != nil {
			return err
		}
	}
	if s.verb == free {
		v.used -= reads[0].size()
		delete(v.memory, reads[0])
	} else if v.host != nil {
		v.compute(s.verb, s.block)
	}
	return nil
}

// alloc makes a zeroed buffer within the limit.
func (v *device) alloc(f buffer) error {
	n := f.size()
	if _, ok := v.memory[f]; ok {
		return fmt.Errorf("%+v is already on the device", f)
	}
	if v.limit > 0 && v.used+n > v.limit {
		return fmt.Errorf("%+v of %d elements does not fit: %d of %d in use", f, n, v.used, v.limit)
	}
	v.memory[f] = nil
	if v.host != nil {
		v.memory[f] = make([]float64, n)
	}
	v.used += n
	v.peak = max(v.peak, v.used)
	return nil
}

// compute does the arithmetic of an instruction whose buffers are there.
func (v *device) compute(do verb, b int) {
	at := func(k kind, b int) []float64 { return v.memory[buffer{k, b}] }
	h, w, x, activations := v.host, at(weight, b), at(input, b), at(saved, b)
	switch {
	case b == blocks && do == forward:
		v.loss = meanSquare(x, h.target)
	case b == blocks && do == backward:
		meanSquareBackward(at(inputGrad, b), x, h.target)
	case b == blocks: // the loss has no weights
	case do == move:
		copy(w, h.weights[b])
	case do == forward:
		blockForward(at(input, b+1), w, x, activations)
	case do == backward:
		blockBackward(at(inputGrad, b), at(grad, b), at(inputGrad, b+1), w, x, activations, at(work, b))
	case do == update:
		h.updates[b]++
		adamw(h.weights[b], at(grad, b), h.m[b], h.v[b], h.updates[b])
	}
}
