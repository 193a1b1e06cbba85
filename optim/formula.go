package optim

import (
	"math"

	"spillway/op"
)

// RegisterFormula adds an optimizer of one's own: a rule, whose Kind and States may be left out, and its
// step as a formula. It is planned, streamed, stored in 16 or 8 bits and run on every device as ours are.
// Call it from an init function; it panics where something is missing or taken.
func RegisterFormula(r Rule, states []UpdateState, f *op.Formula, examples map[string]op.Scalars) {
	if r.Kind == "" {
		r.Kind = op.Kind(r.Name)
	}
	if r.States == nil {
		names := make([]string, len(states))
		for i, s := range states {
			names[i] = s.Name
		}
		r.States = func(Config) []string { return names }
	}
	RegisterUpdate(Update{Kind: r.Kind, States: states, Formula: f, Examples: examples})
	Register(r)
}

// formulaStep is the plain step of a formula, with norms by node.
func formulaStep(f *op.Formula, norms map[int]float32) func(s *op.Scalars, w, g float32, states []Cell) float32 {
	return func(s *op.Scalars, w, g float32, states []Cell) float32 {
		values := append(make([]float32, 0, f.First()+len(f.Nodes)), w, g)
		for i := range states {
			values = append(values, states[i].Value)
		}
		values = append(values, s[:len(f.Scalars)]...)
		values = f.Values(values, norms, func(state int) bool { return states[state].Flush })
		for i := range states {
			states[i].Value = values[f.NewStates[i]]
		}
		return values[f.NewWeight]
	}
}

// formulaNorms computes the norms of a formula over n elements: set gives an element's weight, gradient and
// states, and says whether it counts.
func formulaNorms(f *op.Formula, s *op.Scalars, n int, set func(i int, values []float32) bool) map[int]float32 {
	sums := map[int]float64{}
	for _, node := range f.Norms() {
		sums[node] = 0
	}
	if len(sums) == 0 {
		return nil
	}
	values := make([]float32, f.First(), f.First()+len(f.Nodes))
	copy(values[2+f.States:], s[:len(f.Scalars)])
	for i := range n {
		if !set(i, values) {
			continue
		}
		all := f.Values(values, nil, func(int) bool { return true })
		for node := range sums {
			v := float64(all[f.Nodes[node].In[0]])
			sums[node] += v * v
		}
	}
	norms := map[int]float32{}
	for node, sum := range sums {
		norms[node] = float32(math.Sqrt(sum))
	}
	return norms
}
