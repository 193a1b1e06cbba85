package rig

import (
	"cmp"
	"time"

	"spillway/machine"
	"spillway/op"
	"spillway/shape"
)

// hostUpdates measures what the updates of an optimizer take on the CPU next to a GPU, by the types of weights, gradients
// and states. Some wait for memory, as the rate of updates of f32 says, others for arithmetic: codes of 8 bits are
// looked up, numbers in bf16 take random bits to round with.
type hostUpdates struct {
	*hostCalls
	room int64
}

const (
	// largeUpdate is how many elements are updated, and smallShare the share of them in a small update. What other
	// updates take lies on the line through both.
	largeUpdate, smallShare = 16 << 20, 64
	// updateSpan is how long the updates of one size are timed.
	updateSpan = 60 * time.Millisecond
)

// Updates implements machine.Updater.
func (h *hostCalls) Updates(bytes int64) machine.Calls { return hostUpdates{h, bytes} }

// Within is the same for whoever may take so many bytes of host memory.
func (u hostUpdates) Within(bytes int64) machine.Calls { return hostUpdates{u.hostCalls, bytes} }

// Time of an update; false of every other call.
func (u hostUpdates) Time(c op.Call) (machine.CallTime, bool) {
	if c.InPlace() == nil || c.Kind.WholeParam() || len(c.In) < 3 {
		return machine.CallTime{}, false
	}
	most := cmp.Or(u.o.sizes.params, largeUpdate)
	least := most / smallShare
	large, known := u.of(c, most)
	if !known {
		return machine.CallTime{}, false
	}
	small, known := u.of(c, least)
	if !known {
		return machine.CallTime{}, false
	}
	n, each := float64(c.In[0].Shape.Elements()), float64(large.Device-small.Device)/float64(most-least)
	took := float64(small.Device) + (n-float64(least))*each
	return machine.CallTime{Device: time.Duration(max(took, n*each))}, true
}

// of is the time of such an update of so many elements.
func (u hostUpdates) of(c op.Call, elements int64) (machine.CallTime, bool) {
	c, err := resized(c, elements)
	if err != nil {
		return machine.CallTime{}, false
	}
	return u.asked(c, func() (machine.CallTime, error) { return u.measureUpdate(c, u.room) })
}

// resized is an update of so many elements: of all operands but the factor of clipping.
func resized(c op.Call, elements int64) (op.Call, error) {
	in := append([]op.Type(nil), c.In...)
	for i := range in[:len(in)-1] {
		in[i].Shape = shape.Shape{elements}
	}
	return op.Make(c.Kind, c.Attr, in...)
}

// measureUpdate runs an update on the CPU, with operands that no cache holds.
func (h *hostCalls) measureUpdate(c op.Call, room int64) (took machine.CallTime, err error) {
	if err := h.open(); err != nil {
		return took, err
	}
	h.bench.room = room / 2
	h.bench.cold = min(coldOf(lastCache()), h.bench.room)
	w, err := h.bench.prepare(c)
	if err != nil {
		return took, err
	}
	took.Device, err = w.average(updateSpan)
	return took, err
}
