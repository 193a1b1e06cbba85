package pass

import (
	"slices"

	"spillway/plan"
)

// mostInLine is up to how many bytes are copied in line: GPUs copy as many by a kernel.
const mostInLine = 64 << 10

// InLine has a captured step copy its batch and its result on the lane of its kernels, where they are few bytes.
// Nothing could run next to such a copy anyway, and a graph of one lane is launched faster and has shorter pauses
// between its kernels.
// The instructions become the plan's own. They are those of a phase, so that nothing carries over.
func InLine(p *plan.Plan) {
	p.Instructions = slices.Clone(p.Instructions)
	changed := false
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb != plan.Move || p.Buffers[s.Src].Bytes > mostInLine {
			continue
		}
		to := &p.Buffers[s.Dst]
		if in, out := p.ReadsHostBatch(s) && p.TierOf(s.Dst) == plan.OnDevice, to.Home && to.Class == plan.ResultData; in || out {
			s.Lane, changed = plan.Compute, true
		}
	}
	if !changed {
		return
	}
	Order(p)
	for i := range p.Instructions {
		p.Instructions[i].CarriesOver, p.Instructions[i].AfterPrevious = false, nil
	}
}
