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

// with is the plan with one instruction replaced.
func with(p *plan.Plan, i int, change func(*plan.Instruction)) *plan.Plan {
	q := *p
	q.Instructions = slices.Clone(p.Instructions)
	change(&q.Instructions[i])
	return &q
}

// carriedOver lists the instructions of a plan that carry over.
func carriedOver(p *plan.Plan) (list []int) {
	for i, s := range p.Instructions {
		if s.CarriesOver {
			list = append(list, i)
		}
	}
	return list
}

// Every wait for the previous iteration is there for a reason: a plan that lacks one is not
// sound, while the same plan in which nothing carries over is.
func TestEveryWaitForThePreviousIterationIsNeeded(t *testing.T) {
	for _, clip := range []bool{false, true} {
		p := streamed(t, clip)
		waits := 0
		for i := range p.Instructions {
			for j := range p.Instructions[i].AfterPrevious {
				waits++
				q := with(p, i, func(s *plan.Instruction) { s.AfterPrevious = slices.Delete(slices.Clone(s.AfterPrevious), j, j+1) })
				if err := plan.Verify(q); err == nil || !strings.Contains(err.Error(), "(P9)") || !strings.Contains(err.Error(), "of the next iteration") {
					t.Fatalf("instruction %d without its wait for %d of the previous iteration: %v", i, p.Instructions[i].AfterPrevious[j], err)
				}
			}
		}
		if waits == 0 || len(carriedOver(p)) == 0 {
			t.Errorf("clipping %t: %d instructions carry over, with %d waits", clip, len(carriedOver(p)), waits)
		}
		q := *p
		q.Instructions = slices.Clone(p.Instructions)
		for i := range q.Instructions {
			q.Instructions[i].CarriesOver, q.Instructions[i].AfterPrevious = false, nil
		}
		if err := plan.Verify(&q); err != nil {
			t.Error(err)
		}
	}
}

// Each mistake about what carries over is found.
func TestVerifyCarryOver(t *testing.T) {
	p := streamed(t, true)
	carried := carriedOver(p)
	last := carried[len(carried)-1]
	first := func(is func(*plan.Instruction) bool) int {
		return slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return is(&s) })
	}
	carry := func(s *plan.Instruction) { s.CarriesOver = true }
	result := first(func(s *plan.Instruction) bool {
		return s.Verb == plan.Move && p.Buffers[s.Dst].Class == plan.ResultData
	})
	awaits := first(func(s *plan.Instruction) bool { return len(s.AfterPrevious) > 0 && s.AfterPrevious[0] != carried[0] })
	for _, c := range []struct {
		name, want string
		p          *plan.Plan
	}{
		{"a run that carries over", "is no copy", with(p, first(verb(plan.Run)), carry)},
		{"a copy to the device that carries over", "is no copy", with(p, first(func(s *plan.Instruction) bool { return s.Lane == plan.In }), carry)},
		{"a free that carries over", "is no copy", with(p, first(verb(plan.Free)), carry)},
		{"a result that carries over", "is no copy", with(p, result, carry)},
		{"one that carries over before one that does not", "a later one of its lane", with(p, last, func(s *plan.Instruction) { s.CarriesOver = false })},
		{"a wait for what does not carry over", "does not carry over", with(p, 0, func(s *plan.Instruction) { s.AfterPrevious = []int{result} })},
		{"a wait for no instruction", "does not carry over", with(p, 0, func(s *plan.Instruction) { s.AfterPrevious = []int{len(p.Instructions)} })},
		{"a wait for an earlier instruction", "does not carry over", with(p, last, func(s *plan.Instruction) { s.AfterPrevious = []int{carried[0]} })},
		{"a wait for another instruction", "in no order", with(p, awaits, func(s *plan.Instruction) { s.AfterPrevious = carried[:1] })},
	} {
		if err := plan.Verify(c.p); err == nil || !strings.Contains(err.Error(), "(P9)") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// With a disk nothing carries over.
func TestNothingCarriesOverWithADisk(t *testing.T) {
	site := tiny.Site(1 << 20)
	site.Disk = planner.Disk{Budget: 1 << 30, Read: 1e9, Write: 1e9}
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, tiny.AdamW(2, false), site, func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.OnDisk = make([]bool, slabs)
		c.OnDisk[0] = true
		return c
	})
	if err != nil {
		t.Fatal(err)
	}
	if list := carriedOver(p); len(list) > 0 {
		t.Errorf("instructions %v carry over", list)
	}
	i := len(p.Instructions) - 1
	for p.Instructions[i].Verb != plan.Move || p.Instructions[i].Lane != plan.Out || p.TierOf(p.Instructions[i].Src) != plan.OnDevice {
		i--
	}
	if err := plan.Verify(with(p, i, func(s *plan.Instruction) { s.CarriesOver = true })); err == nil || !strings.Contains(err.Error(), "(P9)") {
		t.Errorf("a copy that carries over in a plan with a disk: %v", err)
	}
}
