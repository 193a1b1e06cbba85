package main

import "fmt"

// device has limited memory and computes three kinds of blocks: embedding, layer and
// head. Without a host it makes a dry run: it counts buffers, but does not allocate or
// compute.
type device struct {
	dims
	host              *host
	memory            map[buffer][]float32
	limit, used, peak int     // elements; a limit of 0 means none
	loss              float64 // of the last forward of the head
}

func newDevice(d dims, h *host, limit int) *device {
	return &device{dims: d, host: h, limit: limit}
}

// iterate executes the plan and returns the loss before its updates. At the start there
// are the input of the embedding (the ids) and the gradient behind the head (of the
// loss by itself, which is 1); both take no memory here. At the end every buffer must
// have been freed.
func (v *device) iterate(p plan) (float64, error) {
	v.memory = map[buffer][]float32{{input, 0}: nil, {inputGrad, v.L + 2}: nil}
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
		v.used -= v.size(reads[0])
		delete(v.memory, reads[0])
	} else if v.host != nil {
		v.compute(s.verb, s.block)
	}
	return nil
}

// alloc makes a zeroed buffer within the limit.
func (v *device) alloc(f buffer) error {
	n := v.size(f)
	if _, ok := v.memory[f]; ok {
		return fmt.Errorf("%+v is already on the device", f)
	}
	if v.limit > 0 && v.used+n > v.limit {
		return fmt.Errorf("%+v of %d elements does not fit: %d of %d in use", f, n, v.used, v.limit)
	}
	v.memory[f] = nil
	if v.host != nil {
		v.memory[f] = make([]float32, n)
	}
	v.used += n
	v.peak = max(v.peak, v.used)
	return nil
}

// compute does the arithmetic of an instruction whose buffers are there.
func (v *device) compute(do verb, b int) {
	at := func(k kind, b int) []float32 { return v.memory[buffer{k, b}] }
	w, x, activations, h := at(weight, b), at(input, b), at(saved, b), v.host
	switch head := v.L + 1; {
	case do == move:
		copy(w, h.weights[b])
	case do == update:
		copy(h.grads[b], at(grad, b))
		h.updates[b]++
		adamw(h.weights[b], h.grads[b], h.m[b], h.v[b], h.updates[b])
	case do == forward && b == 0:
		embed(at(input, 1), w, h.ids, v.C)
	case do == forward && b == head:
		v.loss = v.headForward(w, x, activations, h.targets)
	case do == forward:
		v.layerForward(w, x, activations, at(input, b+1))
	case b == 0:
		embedBackward(at(grad, 0), at(inputGrad, 1), h.ids, v.C)
	case b == head:
		v.headBackward(at(inputGrad, b), at(grad, b), w, x, activations, at(work, b))
	default:
		v.layerBackward(at(inputGrad, b), at(grad, b), at(inputGrad, b+1), w, x, activations, at(work, b))
	}
}
