package plan_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// Each mistake about a batch that comes during the iteration before is found.
func TestVerifyNextBatch(t *testing.T) {
	site := tiny.Site(1 << 20)
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, tiny.AdamW(2, true), site, func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(false, false, strategy.SaveAll, 1)(slabs, blocks)
		c.NextBatch = true
		return c
	})
	if err == nil {
		p, err = planner.WithEvaluation(p, site)
	}
	if err != nil {
		t.Fatal(err)
	}
	find := func(list []plan.Instruction, is func(*plan.Instruction) bool) int {
		return slices.IndexFunc(list, func(s plan.Instruction) bool { return is(&s) })
	}
	takes, brings, reads := find(p.Instructions, p.TakesBatch), find(p.Instructions, p.BringsNextBatch), find(p.Instructions, p.ReadsHostBatch)
	if takes != 0 || brings < len(p.Instructions)-2 || reads < 0 {
		t.Fatalf("the batch is taken by instruction %d, the next one brought by %d, the second micro-batch by %d", takes, brings, reads)
	}
	next, uses := p.Instructions[takes].Src, find(p.Instructions, func(s *plan.Instruction) bool { _, ok := s.Bound(plan.InBatch, 0); return ok })
	for name, c := range map[string]struct {
		of     int
		change func(*plan.Instruction)
		says   string
	}{
		"it does not carry over":          {brings, func(s *plan.Instruction) { s.CarriesOver = false }, "(P9)"},
		"it does not wait until taken":    {brings, func(s *plan.Instruction) { s.After = nil }, "(P6)"},
		"it is taken before it came":      {takes, func(s *plan.Instruction) { s.AfterPrevious = nil }, "(P9)"},
		"it is taken by another lane":     {takes, func(s *plan.Instruction) { s.Lane = plan.In }, "(P"},
		"it comes from elsewhere":         {brings, func(s *plan.Instruction) { s.Src = p.Instructions[takes].Dst }, "(P"},
		"a run reads it":                  {uses, func(s *plan.Instruction) { bind(s, plan.InBatch, next) }, "(P"},
		"it is taken twice":               {reads, func(s *plan.Instruction) { s.Src, s.Lane = next, plan.Compute }, "(P"},
		"another instruction comes later": {brings, func(s *plan.Instruction) { s.Dst = p.Instructions[takes].Dst }, "(P"},
	} {
		q := with(p, c.of, c.change)
		if err := plan.Verify(q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	evaluation := *p
	evaluation.Phases = slices.Clone(p.Phases)
	list := slices.Clone(p.Phases[0].Instructions)
	list[find(list, p.ReadsHostBatch)].Src = next
	evaluation.Phases[0].Instructions = list
	if err := plan.Verify(&evaluation); err == nil || !strings.Contains(err.Error(), "(P13)") {
		t.Errorf("an evaluation takes it: %v", err)
	}
	captured := *p
	captured.Captured, captured.Phases = true, nil
	if err := plan.Verify(&captured); p.CanCapture() || err == nil || !strings.Contains(err.Error(), "(P10)") {
		t.Errorf("captured, while the second micro-batch is read from the host: %v", err)
	}
	if err := plan.Verify(p); err != nil {
		t.Error(err)
	}
}

// bind gives a region of an instruction another buffer.
func bind(s *plan.Instruction, r plan.Region, buffer int) {
	s.Bindings = slices.Clone(s.Bindings)
	for i := range s.Bindings {
		if s.Bindings[i].Region == r {
			s.Bindings[i].Buffer = buffer
		}
	}
}

// Of a captured iteration neither the copy that takes a batch nor the one that brings the next is a part of the graph, so the second waits
// for the first itself, also where copies of weights in its lane wait for kernels behind it.
func TestCapturedIterationsBringNoBatchTooEarly(t *testing.T) {
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	for _, streams := range []bool{false, true} {
		p, err := planner.Build(m, tiny.AdamW(1, true), tiny.Site(1<<20), func(slabs, blocks int) strategy.Choice {
			c := strategy.Uniform(streams, streams, strategy.SaveNone, 2)(slabs, blocks)
			c.NextBatch = true
			return c
		})
		if err != nil {
			t.Fatal(err)
		}
		p = p.Capture()
		takes := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return p.TakesBatch(&s) })
		brings := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return p.BringsNextBatch(&s) })
		if !slices.Contains(p.Instructions[brings].After, takes) {
			t.Errorf("streamed %v: instruction %d waits for %v, not for %d", streams, brings, p.Instructions[brings].After, takes)
		}
		if err := plan.Verify(p); err != nil {
			t.Error(err)
		}
		early := with(p, brings, func(s *plan.Instruction) { s.After = nil })
		if err := plan.Verify(early); err == nil || !strings.Contains(err.Error(), "(P") {
			t.Errorf("streamed %v, too early: %v", streams, err)
		}
	}
}
