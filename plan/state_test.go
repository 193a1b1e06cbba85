package plan_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/shape"
)

// withStates is a sound plan that streams states of every type in small pieces.
func withStates(t testing.TB) *plan.Plan {
	t.Helper()
	goal := tiny.AdamW(1, false)
	goal.Optimizer.States = tiny.MixedStates("exp_avg", "exp_avg_sq")
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, goal, tiny.Site(1<<20), func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveMatmuls, 2)(slabs, blocks)
		c.PieceElements = 512
		return c
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every element of every state has bytes of its own, and a home is as large as they are
// but for alignment.
func TestStatesFillTheirHomes(t *testing.T) {
	p := withStates(t)
	for k := range p.Slabs {
		s := &p.Slabs[k]
		elements := map[string]int64{}
		for _, piece := range s.Pieces {
			var end, sum int64
			spans := p.Optimizer.Spans(s, piece)
			for _, span := range spans {
				for _, state := range span.States {
					if state.Offset < end || state.Offset%plan.StateAlignment != 0 {
						t.Fatalf("slab %s: a state at %d follows one that ends at %d", s.Name, state.Offset, end)
					}
					end = state.Offset + state.Type.Bytes()
					sum += state.Type.Bytes()
				}
			}
			if got := p.Buffers[piece.State].Bytes; got != end || got-sum >= plan.StateAlignment*int64(2*len(spans)) {
				t.Errorf("slab %s: the states from %d on take %d bytes up to %d, their home has %d", s.Name, piece.From, sum, end, got)
			}
			for _, q := range s.Params {
				if part := q.Within(piece); !part.Frozen() {
					elements[q.Name] += part.Type.Shape.Elements()
				}
			}
		}
		for _, q := range s.Params {
			if elements[q.Name] != q.Type.Shape.Elements() {
				t.Errorf("pieces hold %d of %d elements of %s", elements[q.Name], q.Type.Shape.Elements(), q.Name)
			}
		}
	}
}

func TestStatesRoundTrip(t *testing.T) {
	p := withStates(t)
	q := clone(t, p)
	for k, s := range p.Slabs {
		for i, a := range s.Params {
			same := func(a, b op.State) bool { return a.Name == b.Name && a.Type.Equal(b.Type) }
			if !slices.EqualFunc(a.States, q.Slabs[k].Params[i].States, same) {
				t.Errorf("%s: %v became %v", a.Name, a.States, q.Slabs[k].Params[i].States)
			}
		}
	}
	var text strings.Builder
	if err := p.Text(&text); err != nil || !strings.Contains(text.String(), "× exp_avg dyn8 and exp_avg_sq udyn8") {
		t.Errorf("the text does not name states in 8 bits: %v", err)
	}
}

// Neighbours are updated at once where that changes nothing: alike in every type, and
// with blocks that end where a param does.
func TestSpansJoinWhatIsAlike(t *testing.T) {
	u := &plan.Optimizer{Rule: optim.Lion, GradType: dtype.F32}
	param := func(at, n int64, state dtype.Type, decay bool) plan.SlabParam {
		typ := op.Type{DType: dtype.F32, Shape: shape.Shape{n}}
		return plan.SlabParam{Name: "p", Type: typ, Offset: 4 * at, Element: at, Decay: decay, States: []op.State{{Name: "exp_avg", Type: op.Type{DType: state, Shape: typ.Shape}}}}
	}
	for _, c := range []struct {
		name   string
		params []plan.SlabParam
		want   int
	}{
		{"alike", []plan.SlabParam{param(0, 512, quant.Dyn8, true), param(512, 300, quant.Dyn8, true)}, 1},
		{"a block over the border", []plan.SlabParam{param(0, 500, quant.Dyn8, true), param(500, 300, quant.Dyn8, true)}, 2},
		{"no blocks", []plan.SlabParam{param(0, 500, dtype.BF16, true), param(500, 300, dtype.BF16, true)}, 1},
		{"a gap", []plan.SlabParam{param(0, 500, dtype.BF16, true), param(512, 300, dtype.BF16, true)}, 2},
		{"other types", []plan.SlabParam{param(0, 512, quant.Dyn8, true), param(512, 300, dtype.F32, true)}, 2},
		{"other decay", []plan.SlabParam{param(0, 512, quant.Dyn8, true), param(512, 300, quant.Dyn8, false)}, 2},
	} {
		s := &plan.Slab{Params: c.params}
		if got := u.Spans(s, plan.Piece{From: 0, To: 1024}); len(got) != c.want {
			t.Errorf("%s: %d spans, want %d", c.name, len(got), c.want)
		}
	}
}

func TestVerifyFindsDamagedStates(t *testing.T) {
	coded := func(p *plan.Plan) (slab, param int) {
		for k, s := range p.Slabs {
			for i, q := range s.Params {
				if q.HasBlockState() && len(s.Pieces) > 1 {
					return k, i
				}
			}
		}
		t.Fatal("no param has states in blocks")
		return 0, 0
	}
	for _, c := range []struct {
		name, rule, says string
		damage           func(p *plan.Plan)
	}{
		{"a param whose blocks are cut", "P7", "inside a block", func(p *plan.Plan) {
			k, i := coded(p)
			p.Slabs[k].Params[i].Element += 4
		}},
		{"a state the rule cannot use", "P7", "next to the weight", func(p *plan.Plan) {
			k, i := coded(p)
			p.Slabs[k].Params[i].States[0].Type.DType = quant.NF4
		}},
		{"a state too few", "P7", "5 operands", func(p *plan.Plan) {
			k, i := coded(p)
			p.Slabs[k].Params[i].States = p.Slabs[k].Params[i].States[:1]
		}},
		{"states larger than their home", "P4", "needs", func(p *plan.Plan) {
			k, i := coded(p)
			p.Slabs[k].Params[i].States[0].Type.DType = dtype.F32
		}},
	} {
		p := clone(t, withStates(t))
		c.damage(p)
		if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "("+c.rule+")") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s and %q", c.name, err, c.rule, c.says)
		}
	}
}
