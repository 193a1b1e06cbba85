package main

import "fmt"

// device is memory with a limit and a CPU that knows three kinds of block.
// Without a host it only rehearses: buffers are counted, not made, nothing is computed.
type device struct {
	dims
	host              *host
	memory            map[buffer][]float32
	limit, used, peak int     // elements; limit 0 is none
	loss              float64 // of the last forward of the head
}

func newDevice(d dims, h *host, limit int) *device {
	return &device{dims: d, host: h, limit: limit}
}

// iterate carries out the plan and returns the loss before its updates. At the start
// there are the ids and, at the far end, the gradient of the loss by itself: both are
// buffers of no size here. At the end nothing may be left.
func (v *device) iterate(p plan) (float64, error) {
	v.memory = map[buffer][]float32{{input, 0}: nil, {flow, v.L + 2}: nil}
	for i, s := range p {
		if err := v.carryOut(s); err != nil {
			return 0, fmt.Errorf("instruction %d of %d, %+v: %w", i, len(p), s, err)
		}
	}
	if v.used != 0 {
		return 0, fmt.Errorf("plan of %d instructions leaves %d elements on the device; free them", len(p), v.used)
	}
	return v.loss, nil
}

func (v *device) carryOut(s instruction) error {
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
	if s.do == free {
		v.used -= v.size(reads[0])
		delete(v.memory, reads[0])
	} else if v.host != nil {
		v.compute(s.do, s.block)
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
	w, x, save, h := at(weight, b), at(input, b), at(saved, b), v.host
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
		v.loss = v.headForward(w, x, save, h.targets)
	case do == forward:
		v.layerForward(w, x, save, at(input, b+1))
	case b == 0:
		embedBackward(at(grad, 0), at(flow, 1), h.ids, v.C)
	case b == head:
		v.headBackward(at(flow, b), at(grad, b), w, x, save, at(work, b))
	default:
		v.layerBackward(at(flow, b), at(grad, b), at(flow, b+1), w, x, save, at(work, b))
	}
}
