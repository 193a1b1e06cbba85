// Package emit writes the plan of a choice: the homes, then the instructions of one
// iteration in the order they are issued.
//
//	w := emit.NewWriter(l)
//	p, err := w.Plan(choice) // buffers have places; lanes are not ordered yet
//
// An iteration is a list of visits: some micro-batches pass a block forward or backward on a
// device. Around each visit the emitter writes what feeds it (batches, prefetched weights,
// offloaded activations) and what follows from it: sums over devices, parts of the gradient
// norm, updates. A visit of a streamed block reads
//
//	move   layer 7's weights to gpu0     prefetched during layer 6
//	run    layer 7 forward, micro-batch 0
//	move   its saved values to the host  where they are offloaded
//
// Three types write, each over the one before: script appends buffers and instructions,
// homes knows what each device holds, emitter walks over the visits. Updates, prefetching
// and the order of visits are types of their own.
package emit

import (
	"fmt"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// Writer writes plans of choices, all of one layout. The memory of drafts that were dropped
// is used again: a search writes hundreds.
type Writer struct {
	l       *layout.Layout
	usual   planSize
	spare   spareMemory
	waiting map[layout.BlockKey]int64 // see waitingBytes
}

// planSize is that of a plan before its frees.
type planSize struct{ buffers, instructions int }

// spareMemory is that of a plan that is no longer wanted.
type spareMemory struct {
	buffers      []plan.Buffer
	instructions []plan.Instruction
}

// NewWriter writes plans of a layout.
func NewWriter(b *layout.Layout) *Writer { return &Writer{l: b, waiting: map[layout.BlockKey]int64{}} }

// Plan writes the plan of a choice, with places for all buffers. Its lanes are not ordered.
func (w *Writer) Plan(c strategy.Choice) (*plan.Plan, error) {
	d, err := w.Draft(c)
	if err != nil {
		return nil, err
	}
	d.Pack()
	d.Finish()
	return d.Plan, nil
}

// Draft writes the plan of a choice but for the places of its buffers.
func (w *Writer) Draft(c strategy.Choice) (*Draft, error) {
	e, err := w.begin(c)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", w.l.Model.Name, err)
	}
	e.takeBatches()
	for i, u := range e.visits {
		if err := e.visit(i, u); err != nil {
			return nil, err
		}
	}
	if w.l.Training() && w.l.Goal.Optimizer.Clip {
		e.updates.clippedUpdates()
	}
	e.updates.uploadAll(0)
	e.bringNextBatch()
	w.usual = planSize{len(e.p.Buffers) + len(e.p.Buffers)/16, len(e.p.Instructions) + len(e.p.Instructions)/16}
	d := &Draft{pass.NewMemory(e.p, w.l.Site.Alignment, append(e.diskHolds(), e.updates.holds()...)), e.p, e.c}
	d.DelayReuse(e.c.Held())
	d.PackedBy = e.c.PackedBy
	return d, nil
}

// Drop gives the memory of a draft back, for those to come.
func (w *Writer) Drop(d *Draft) {
	w.spare = spareMemory{d.Plan.Buffers[:0], d.Plan.Instructions[:0]}
}

// UsualLength is how many instructions plans mostly have, frees not counted.
func (w *Writer) UsualLength() int { return w.usual.instructions }
