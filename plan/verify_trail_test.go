package plan_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
)

// with is the plan with one step replaced.
func with(p *plan.Plan, i int, change func(*plan.Instruction)) *plan.Plan {
	q := *p
	q.Instructions = slices.Clone(p.Instructions)
	change(&q.Instructions[i])
	return &q
}

// trailing lists the steps of a plan that trail.
func trailing(p *plan.Plan) (list []int) {
	for i, s := range p.Instructions {
		if s.CarriesOver {
			list = append(list, i)
		}
	}
	return list
}

// Every wait for the iteration before is there for a reason: a plan that lacks one is not
// sound, while the same plan in which nothing trails is.
func TestEveryWaitForThePastIsNeeded(t *testing.T) {
	for _, clip := range []bool{false, true} {
		p := streamed(t, clip)
		waits := 0
		for i := range p.Instructions {
			for j := range p.Instructions[i].AfterPrevious {
				waits++
				q := with(p, i, func(s *plan.Instruction) { s.AfterPrevious = slices.Delete(slices.Clone(s.AfterPrevious), j, j+1) })
				if err := plan.Verify(q); err == nil || !strings.Contains(err.Error(), "(P9)") || !strings.Contains(err.Error(), "of the next iteration") {
					t.Fatalf("step %d without its wait for %d of before: %v", i, p.Instructions[i].AfterPrevious[j], err)
				}
			}
		}
		if waits == 0 || len(trailing(p)) == 0 {
			t.Errorf("clipping %t: %d steps trail, with %d waits", clip, len(trailing(p)), waits)
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

// Each way to get what trails wrong is found.
func TestVerifyTrails(t *testing.T) {
	p := streamed(t, true)
	trails := trailing(p)
	last := trails[len(trails)-1]
	first := func(is func(*plan.Instruction) bool) int {
		return slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return is(&s) })
	}
	trail := func(s *plan.Instruction) { s.CarriesOver = true }
	result := first(func(s *plan.Instruction) bool {
		return s.Verb == plan.Move && p.Buffers[s.Dst].Class == plan.ResultData
	})
	awaits := first(func(s *plan.Instruction) bool { return len(s.AfterPrevious) > 0 && s.AfterPrevious[0] != trails[0] })
	for _, c := range []struct {
		name, want string
		p          *plan.Plan
	}{
		{"a run that trails", "is no copy", with(p, first(verb(plan.Run)), trail)},
		{"a copy to the device that trails", "is no copy", with(p, first(func(s *plan.Instruction) bool { return s.Lane == plan.In }), trail)},
		{"a free that trails", "is no copy", with(p, first(verb(plan.Free)), trail)},
		{"a result that trails", "is no copy", with(p, result, trail)},
		{"a step that trails before one that does not", "behind it in its lane", with(p, last, func(s *plan.Instruction) { s.CarriesOver = false })},
		{"a wait for what does not trail", "does not trail behind it", with(p, 0, func(s *plan.Instruction) { s.AfterPrevious = []int{result} })},
		{"a wait for no step", "does not trail behind it", with(p, 0, func(s *plan.Instruction) { s.AfterPrevious = []int{len(p.Instructions)} })},
		{"a wait for a step before", "does not trail behind it", with(p, last, func(s *plan.Instruction) { s.AfterPrevious = []int{trails[0]} })},
		{"a wait for another step", "in no order", with(p, awaits, func(s *plan.Instruction) { s.AfterPrevious = trails[:1] })},
	} {
		if err := plan.Verify(c.p); err == nil || !strings.Contains(err.Error(), "(P9)") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Beside a disk nothing trails.
func TestNothingTrailsBesideADisk(t *testing.T) {
	site := tiny.Site(1 << 20)
	site.Disk = planner.Disk{Budget: 1 << 30, Read: 1e9, Write: 1e9}
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, tiny.AdamW(2, false), site, func(slabs, blocks int) planner.Choice {
		c := planner.Uniform(true, true, planner.SaveNone, 2)(slabs, blocks)
		c.OnDisk = make([]bool, slabs)
		c.OnDisk[0] = true
		return c
	})
	if err != nil {
		t.Fatal(err)
	}
	if list := trailing(p); len(list) > 0 {
		t.Errorf("steps %v trail", list)
	}
	i := len(p.Instructions) - 1
	for p.Instructions[i].Verb != plan.Move || p.Instructions[i].Lane != plan.Out || p.TierOf(p.Instructions[i].Src) != plan.OnDevice {
		i--
	}
	if err := plan.Verify(with(p, i, func(s *plan.Instruction) { s.CarriesOver = true })); err == nil || !strings.Contains(err.Error(), "(P9)") {
		t.Errorf("a copy that trails beside a disk: %v", err)
	}
}
