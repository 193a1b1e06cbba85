package plan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway/graph"
	"spillway/internal/bounded"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// streamed is a sound plan that moves, recomputes, clips and updates.
func streamed(t testing.TB, clip bool) *plan.Plan {
	t.Helper()
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, tiny.AdamW(2, clip), tiny.Site(1<<20), strategy.Uniform(true, true, strategy.SaveMatmuls, 2))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clone goes through JSON, so it is also the round trip every saved plan makes.
func clone(t testing.TB, p *plan.Plan) *plan.Plan {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	q, err := plan.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestRoundTrip(t *testing.T) {
	p := streamed(t, true)
	a, _ := json.Marshal(p)
	b, _ := json.Marshal(clone(t, p))
	if !bytes.Equal(a, b) {
		t.Error("a plan read back differs from the one written")
	}
}

// Every wait is there for a reason: a plan that lacks one is not sound.
func TestEveryWaitIsNeeded(t *testing.T) {
	p := streamed(t, true)
	waits := 0
	for i := range p.Instructions {
		for j := range p.Instructions[i].After {
			waits++
			q := *p
			q.Instructions = slices.Clone(p.Instructions)
			q.Instructions[i].After = slices.Delete(slices.Clone(p.Instructions[i].After), j, j+1)
			if err := plan.Verify(&q); err == nil || !strings.Contains(err.Error(), "(P6)") {
				t.Fatalf("instruction %d without its wait for %d: %v", i, p.Instructions[i].After[j], err)
			}
		}
	}
	if waits < 10 {
		t.Errorf("only %d waits: the plan does not stream", waits)
	}
}

// find gives the first instruction that satisfies a condition.
func find(t testing.TB, p *plan.Plan, is func(*plan.Instruction) bool) *plan.Instruction {
	t.Helper()
	for i := range p.Instructions {
		if is(&p.Instructions[i]) {
			return &p.Instructions[i]
		}
	}
	t.Fatal("the plan has no such instruction")
	return nil
}

func verb(v plan.Verb) func(*plan.Instruction) bool {
	return func(s *plan.Instruction) bool { return s.Verb == v }
}

// Damage of every kind is found, by the rule made for it.
func TestVerifyFindsDamage(t *testing.T) {
	sound := streamed(t, true)
	for _, c := range []struct {
		name, rule string
		damage     func(p *plan.Plan)
	}{
		{"arena above the budget", "P1", func(p *plan.Plan) { p.Devices[0].Budget = p.Arenas[0].Bytes - 1 }},
		{"buffer beyond its arena", "P1", func(p *plan.Plan) { p.Buffers[0].Offset = p.Arenas[p.Buffers[0].Arena].Bytes }},
		{"offset that overflows", "P1", func(p *plan.Plan) { p.Buffers[0].Offset = 1<<63 - 1 }},
		{"unknown arena", "P1", func(p *plan.Plan) { p.Buffers[0].Arena = 7 }},
		{"other version", "P1", func(p *plan.Plan) { p.Version++ }},
		{"a rank left out", "P1", func(p *plan.Plan) { p.Devices[0].Rank = 2 }},
		{"two homes in one place", "P2", func(p *plan.Plan) {
			var homes []int
			for i, b := range p.Buffers {
				if b.Home && b.Arena == 1 && b.Bytes > 0 {
					homes = append(homes, i)
				}
			}
			p.Buffers[homes[1]].Offset = p.Buffers[homes[0]].Offset
		}},
		{"a value of another type", "P3", func(p *plan.Plan) { p.Programs[0].Graph.Types[1].Shape = []int64{3} }},
		{"a frame too small", "P3", func(p *plan.Plan) {
			for i := range p.Programs {
				if g := &p.Programs[i]; g.Workspace > 0 {
					g.Workspace = 1
					return
				}
			}
		}},
		{"an inner value among the weights", "P3", func(p *plan.Plan) {
			for i := range p.Programs {
				for v, at := range p.Programs[i].Places {
					if at.Region == plan.InFrame {
						p.Programs[i].Places[v].Region = plan.InWeight
						return
					}
				}
			}
		}},
		{"a region bound to nothing", "P4", func(p *plan.Plan) {
			s := find(t, p, verb(plan.Run))
			s.Bindings = s.Bindings[:0]
		}},
		{"a move of another size", "P4", func(p *plan.Plan) {
			s := find(t, p, verb(plan.Move))
			p.Buffers[s.Dst].Bytes--
		}},
		{"a wait for a later instruction", "P4", func(p *plan.Plan) { p.Instructions[0].After = []int{5} }},
		{"an unknown verb", "P4", func(p *plan.Plan) { p.Instructions[0].Verb = "jump" }},
		{"an unknown lane", "P4", func(p *plan.Plan) { p.Instructions[0].Lane = "left" }},
		{"memory of another rank", "P4", func(p *plan.Plan) {
			p.Devices = append(p.Devices, plan.Device{Name: "gpu1", Rank: 1})
			find(t, p, verb(plan.Run)).Device = 1
		}},
		{"a free too early", "P5", func(p *plan.Plan) {
			i := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return s.Verb == plan.Free })
			p.Instructions[i], p.Instructions[i-1] = p.Instructions[i-1], p.Instructions[i]
			for j := range p.Instructions {
				p.Instructions[j].After = nil
			}
		}},
		{"a free left out", "P5", func(p *plan.Plan) {
			i := len(p.Instructions) - 1
			for p.Instructions[i].Verb != plan.Free {
				i--
			}
			p.Instructions = append(p.Instructions[:i:i], p.Instructions[i+1:]...)
			for j := range p.Instructions {
				for k, a := range p.Instructions[j].After {
					if a > i {
						p.Instructions[j].After[k] = a - 1
					}
				}
			}
		}},
		{"live buffers in one place", "P5", func(p *plan.Plan) {
			s := find(t, p, func(s *plan.Instruction) bool {
				_, carry := s.Bound(plan.OutCarry, 0)
				_, frame := s.Bound(plan.InFrame, 0)
				return carry && frame
			})
			out, _ := s.Bound(plan.OutCarry, 0)
			frame, _ := s.Bound(plan.InFrame, 0)
			p.Buffers[out.Buffer].Offset = p.Buffers[frame.Buffer].Offset
		}},
		{"no order between lanes", "P6", func(p *plan.Plan) {
			find(t, p, func(s *plan.Instruction) bool { return s.Verb == plan.Run && len(s.After) > 0 }).After = nil
		}},
		{"an update twice", "P7", func(p *plan.Plan) {
			first := find(t, p, func(s *plan.Instruction) bool { return s.Verb == plan.Update && s.Block == 2 })
			second := find(t, p, func(s *plan.Instruction) bool { return s.Verb == plan.Update && s.Block == 1 })
			first.Slab = second.Slab
		}},
		{"frozen slab updated", "P7", func(p *plan.Plan) { p.Slabs[find(t, p, verb(plan.Update)).Slab].Elements = 0 }},
		{"a piece left out", "P7", func(p *plan.Plan) {
			s := &p.Slabs[find(t, p, verb(plan.Update)).Slab]
			s.Pieces[0].To--
		}},
		{"a deferred run", "P8", func(p *plan.Plan) { find(t, p, verb(plan.Run)).Deferred = true }},
		{"a run that carries over", "P9", func(p *plan.Plan) { find(t, p, verb(plan.Run)).CarriesOver = true }},
		{"captured with what carries over", "P10", func(p *plan.Plan) { p.Captured = true }},
		{"pages larger than their buffer", "P11", func(p *plan.Plan) {
			p.Buffers[deviceHome(t, p)].Pages = &plan.Pages{Table: clipBuffer(t, p), Bytes: 1 << 40}
		}},
		{"a table that does not exist", "P11", func(p *plan.Plan) {
			p.Buffers[deviceHome(t, p)].Pages = &plan.Pages{Table: len(p.Buffers), Bytes: 4}
		}},
		{"a table on the host", "P11", func(p *plan.Plan) {
			p.Buffers[deviceHome(t, p)].Pages = &plan.Pages{Table: p.Slabs[0].Weight, Bytes: 4}
		}},
		{"an indirect buffer that moves", "P11", func(p *plan.Plan) {
			p.Buffers[find(t, p, verb(plan.Move)).Dst].Pages = &plan.Pages{Table: clipBuffer(t, p), Bytes: 4}
		}},
		{"two phases of one name", "P12", func(p *plan.Plan) { p.Phases = []plan.Phase{{Name: "a"}, {Name: "a"}} }},
		{"a phase that updates", "P12", func(p *plan.Plan) {
			p.Phases = []plan.Phase{{Name: "a", Instructions: p.Instructions}}
		}},
		{"a phase that frees nothing", "P5", func(p *plan.Plan) {
			p.Phases = []plan.Phase{{Name: "a", Instructions: p.Instructions[:1]}}
		}},
	} {
		p := clone(t, sound)
		c.damage(p)
		err := plan.Verify(p)
		if err == nil || !strings.Contains(err.Error(), "("+c.rule+")") {
			t.Errorf("%s: want a %s error, got %v", c.name, c.rule, err)
		}
	}
}

// clipBuffer holds the clip factor: a small home on the device.
func clipBuffer(t testing.TB, p *plan.Plan) int {
	t.Helper()
	b, _ := find(t, p, verb(plan.Update)).Bound(plan.InClip, 0)
	return b.Buffer
}

// deviceHome is another home on the device.
func deviceHome(t testing.TB, p *plan.Plan) int {
	t.Helper()
	clip := clipBuffer(t, p)
	i := slices.IndexFunc(p.Buffers, func(b plan.Buffer) bool { return b.Home && b.Arena == 0 && b.Name != p.Buffers[clip].Name })
	if i < 0 {
		t.Fatal("no other home is on the device")
	}
	return i
}

// A plan without any of the damage is sound with pages, a captured graph and a phase.
func TestVerifyAcceptsWhatIsSound(t *testing.T) {
	p := clone(t, streamed(t, true).Capture())
	p, err := planner.WithEvaluation(p, tiny.Site(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	p.Buffers[deviceHome(t, p)].Pages = &plan.Pages{Table: clipBuffer(t, p), Bytes: 4}
	if err := plan.Verify(clone(t, p)); err != nil {
		t.Error(err)
	}
	var runs, updates int
	for _, s := range p.Phases[0].Instructions {
		switch s.Verb {
		case plan.Run:
			runs++
		case plan.Update:
			updates++
		}
	}
	if runs == 0 || updates > 0 {
		t.Errorf("the evaluation has %d runs and %d updates", runs, updates)
	}
}

// A plan of another version is refused by its version, before anything else is read.
func TestReadNamesTheVersion(t *testing.T) {
	_, err := plan.Read(strings.NewReader(`{"version":2,"micros":1,"steps":[]}`))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("its version is 2, this program reads %d", plan.Version)) {
		t.Errorf("got %v", err)
	}
}

// What an update changed must go home.
func TestVerifyWantsChangesMovedHome(t *testing.T) {
	p := streamed(t, false)
	i := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool {
		return s.Verb == plan.Move && s.Lane == plan.Out && p.Buffers[s.Src].Class == plan.Weight
	})
	if i < 0 {
		t.Fatal("no weights are moved home")
	}
	// The move now goes to the home of another class of the same size, or nowhere.
	p.Instructions[i].Verb, p.Instructions[i].Program = plan.Reduce, 0
	p.Instructions[i].Bindings = []plan.Binding{{Region: plan.OutPartial, Buffer: p.Instructions[i].Dst}, {Region: plan.InClip, Buffer: p.Instructions[i].Dst}}
	if err := plan.Verify(p); err == nil {
		t.Error("accepted a plan that forgets its updates")
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := streamed(f, true).Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	for _, s := range []string{"", "{}", `{"version":3}`, `{"version":3,"micro_batches":1,"micro_batch_size":1,"devices":[{"name":"a","budget_bytes":1}],"instructions":[{"verb":"run","program":-1}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded.Check(t, len(data), func() {
			p, err := plan.Read(bytes.NewReader(data))
			if err != nil {
				return
			}
			if err := plan.Verify(p); err != nil {
				t.Errorf("Read accepted what Verify does not: %v", err)
			}
		})
	})
}
