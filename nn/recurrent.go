package nn

import (
	"fmt"
	"math"

	"spillway/graph"
	"spillway/op"
)

// Recurrent is PyTorch's RNN, LSTM or GRU with batch_first: layers, each in one direction or both. A program has the steps of all positions one after the other.
type Recurrent struct {
	Cell          Cell
	In, Hidden    int64
	Layers        int
	Bidirectional bool
	Dropout       float64 // between layers
	weights       []direction
	Precision
}

// Cell is what a step computes.
type Cell string

// The cells, with tanh as PyTorch's default.
const (
	RNNCell  Cell = "rnn"
	LSTMCell Cell = "lstm"
	GRUCell  Cell = "gru"
)

// gates is how many rows of Hidden its weights have.
func (c Cell) gates() int64 { return map[Cell]int64{RNNCell: 1, LSTMCell: 4, GRUCell: 3}[c] }

// direction is the weights of a layer in one direction.
type direction struct {
	suffix               string // of their names
	input, state         *Param // [gates·H in], [gates·H H]
	inputBias, stateBias *Param // [gates·H]
	backward             bool
}

// NewLSTM, NewGRU and NewRNN start as PyTorch's: uniform within 1/√hidden.
func NewLSTM(in, hidden int64, layers int, bidirectional bool) *Recurrent {
	return newRecurrent(LSTMCell, in, hidden, layers, bidirectional)
}
func NewGRU(in, hidden int64, layers int, bidirectional bool) *Recurrent {
	return newRecurrent(GRUCell, in, hidden, layers, bidirectional)
}
func NewRNN(in, hidden int64, layers int, bidirectional bool) *Recurrent {
	return newRecurrent(RNNCell, in, hidden, layers, bidirectional)
}

func newRecurrent(cell Cell, in, hidden int64, layers int, both bool) *Recurrent {
	r := &Recurrent{Cell: cell, In: in, Hidden: hidden, Layers: layers, Bidirectional: both}
	init, rows, suffixes := Uniform(1/math.Sqrt(float64(max(hidden, 1)))), cell.gates()*hidden, []string{""}
	if both {
		suffixes = append(suffixes, "_reverse")
	}
	for l := range layers {
		for i, suffix := range suffixes {
			r.weights = append(r.weights, direction{fmt.Sprintf("_l%d%s", l, suffix), NewParam(init, rows, in), NewParam(init, rows, hidden), NewParam(init, rows), NewParam(init, rows), i == 1})
		}
		in = hidden * int64(len(suffixes))
	}
	return r
}

// Named are the weights by PyTorch's names.
func (r *Recurrent) Named() (list []NamedParam) {
	for _, d := range r.weights {
		list = append(list, NamedParam{"weight_ih" + d.suffix, d.input}, NamedParam{"weight_hh" + d.suffix, d.state},
			NamedParam{"bias_ih" + d.suffix, d.inputBias}, NamedParam{"bias_hh" + d.suffix, d.stateBias})
	}
	return list
}

// state is what a direction of a layer passes from step to step [1 B H]; c is the memory of an LSTM. No values count as zeros.
type state struct{ h, c graph.Value }

// Forward maps x [B T in] to the states of the last layer [B T H], or [B T 2·H]. It starts from zeros.
func (r *Recurrent) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return r.Precision.In(b, x, func(x graph.Value) graph.Value {
		return r.forward(b, x, make([]state, len(r.weights)), 0)
	})
}

// ForwardFrom starts from states h, and of an LSTM c, [layers·directions B H], and gives those at the end too, as PyTorch's h_n and
// c_n. No values count as zeros.
func (r *Recurrent) ForwardFrom(b *graph.Builder, x, h, c graph.Value) (y, hn, cn graph.Value) {
	return r.ForwardPacked(b, x, h, c, 0)
}

// ForwardPacked is ForwardFrom of sequences of several lengths [B] i32, as PyTorch's with pack_padded_sequence: behind its end a sequence
// has outputs of zeros and its states stay, and the direction back begins at its end. No lengths count as all of x.
func (r *Recurrent) ForwardPacked(b *graph.Builder, x, h, c, lengths graph.Value) (y, hn, cn graph.Value) {
	y = r.Precision.In(b, x, func(x graph.Value) graph.Value {
		states := make([]state, len(r.weights))
		if !r.valid(b, x, h, c) {
			return 0
		}
		for i := range states {
			at := func(v graph.Value) graph.Value {
				if v == 0 {
					return 0
				}
				return b.Cast(b.Slice(v, 0, int64(i), int64(i)+1, 1), b.TypeOf(x).DType)
			}
			states[i] = state{at(h), at(c)}
		}
		y := r.forward(b, x, states, lengths)
		hs, cs := make([]graph.Value, len(states)), make([]graph.Value, len(states))
		for i, s := range states {
			hs[i], cs[i] = s.h, s.c
		}
		if hn = b.ConcatAxis(0, hs...); r.Cell == LSTMCell {
			cn = b.ConcatAxis(0, cs...)
		}
		return y
	})
	return y, hn, cn
}

// forward leaves the states at the end in states.
func (r *Recurrent) forward(b *graph.Builder, x graph.Value, states []state, lengths graph.Value) graph.Value {
	if !r.valid(b, x, 0, 0) {
		return 0
	}
	within := r.within(b, x, lengths)
	x = b.Permute(x, 1, 0, 2) // positions first
	per := len(r.weights) / max(r.Layers, 1)
	for i := 0; i < len(r.weights); i += per {
		if i > 0 {
			x = b.Dropout(x, r.Dropout)
		}
		both := make([]graph.Value, per)
		for k := range both {
			both[k] = r.run(b, r.weights[i+k], x, &states[i+k], within)
		}
		if x = both[0]; per > 1 {
			x = b.Concat(both...)
		}
	}
	return b.Permute(x, 1, 0, 2)
}

// valid is false, and the mistake kept, for numbers that no recurrent layer has, and for inputs and states that do not fit it.
func (r *Recurrent) valid(b *graph.Builder, x, h, c graph.Value) bool {
	s, directions := b.TypeOf(x).Shape, 1
	if r.Bidirectional {
		directions = 2
	}
	switch {
	case b.Err() != nil:
	case r.Cell.gates() == 0 || r.Layers < 1 || len(r.weights) != r.Layers*directions:
		b.Fail("%s: %d layers in %d directions with weights of %d; NewLSTM, NewGRU and NewRNN make it, of 1 layer or more", r.Cell, r.Layers, directions, len(r.weights))
	case len(s) != 3 || s[2] != r.In:
		b.Fail("%s: %v, want [B T %d]", r.Cell, b.TypeOf(x), r.In)
	case r.Dropout != 0 && r.Layers == 1 || !(r.Dropout >= 0 && r.Dropout <= 1):
		b.Fail("%s: a dropout of %v between %d layers; it is from 0 to 1, and 0 where there is one layer", r.Cell, r.Dropout, r.Layers)
	case c != 0 && r.Cell != LSTMCell:
		b.Fail("%s: states c %v, which only %s has", r.Cell, b.TypeOf(c), LSTMCell)
	}
	for _, v := range []graph.Value{h, c} {
		if want := []int64{int64(len(r.weights)), s[0], r.Hidden}; v != 0 && b.Err() == nil && !b.TypeOf(v).Shape.Equal(want) {
			b.Fail("%s: states are %v, want %v: layers·directions, samples, hidden", r.Cell, b.TypeOf(v), want)
		}
	}
	return b.Err() == nil
}

// within says for each position of x [B T in] whether sequences have it, 1 or 0 [1 B 1]; nil where all have all.
func (r *Recurrent) within(b *graph.Builder, x, lengths graph.Value) []graph.Value {
	s := b.TypeOf(x).Shape
	if lengths == 0 || b.Err() != nil {
		return nil
	}
	ends, list := b.Reshape(counts(b, string(r.Cell), lengths, s[0], s[1]), 1, s[0], 1), make([]graph.Value, s[1])
	for t := range list {
		list[t] = b.Cast(b.Compare(op.Greater, ends, b.Number(ends, float64(t))), b.TypeOf(x).DType)
	}
	return list
}

// run steps over x [T B in] and gives all states [T B H]; at is the one before, then the last.
func (r *Recurrent) run(b *graph.Builder, d direction, x graph.Value, at *state, within []graph.Value) graph.Value {
	seen := b.Linear(x, d.input.Value(b), d.inputBias.Value(b))
	if r.Cell != GRUCell { // the state's bias is within a product there
		seen = b.Add(seen, d.stateBias.Value(b))
	}
	if b.Err() != nil {
		return 0
	}
	n := int(b.TypeOf(x).Shape[0])
	ones := make([]int64, n)
	for i := range ones {
		ones[i] = 1
	}
	steps := b.SplitAxis(seen, 0, ones...)
	states := make([]graph.Value, n)
	for t := range n {
		if d.backward {
			t = n - 1 - t
		}
		before := *at
		at.h, at.c = r.step(b, d, steps[t], at.h, at.c)
		states[t] = at.h
		if within != nil {
			states[t] = b.Binary(op.If, within[t], at.h)
			at.h, at.c = kept(b, within[t], at.h, before.h), kept(b, within[t], at.c, before.c)
		}
	}
	return b.ConcatAxis(0, states...)
}

// kept is the state before where a sequence has ended; no values count as zeros.
func kept(b *graph.Builder, within, fresh, before graph.Value) graph.Value {
	switch {
	case fresh == 0:
		return 0
	case before == 0:
		return b.Binary(op.If, within, fresh)
	}
	return b.Where(within, fresh, before)
}

// step gives the next state of h, and of the memory c of an LSTM; no values count as zeros.
func (r *Recurrent) step(b *graph.Builder, d direction, seen, h, c graph.Value) (graph.Value, graph.Value) {
	if r.Cell == GRUCell {
		return r.stepGRU(b, d, seen, h), 0
	}
	if h != 0 {
		seen = b.LinearPlus(h, d.state.Value(b), seen)
	} else {
		d.state.Value(b) // the first step names the weights in the order of the others
	}
	if r.Cell == RNNCell {
		return b.Unary(op.Tanh, seen), 0
	}
	g := b.Split(seen, r.Hidden, r.Hidden, r.Hidden, r.Hidden)
	fresh := b.Gated(op.Sigmoid, g[0], b.Unary(op.Tanh, g[2]))
	if c != 0 {
		fresh = b.Add(b.Gated(op.Sigmoid, g[1], c), fresh)
	}
	return b.Gated(op.Sigmoid, g[3], b.Unary(op.Tanh, fresh)), fresh
}

func (r *Recurrent) stepGRU(b *graph.Builder, d direction, seen, h graph.Value) graph.Value {
	x := b.Split(seen, 2*r.Hidden, r.Hidden)
	if h == 0 {
		h = b.Scale(x[1], 0)
	}
	s := b.Split(b.Linear(h, d.state.Value(b), d.stateBias.Value(b)), 2*r.Hidden, r.Hidden)
	gates := b.Split(b.Add(x[0], s[0]), r.Hidden, r.Hidden)
	fresh := b.Unary(op.Tanh, b.Add(x[1], b.Gated(op.Sigmoid, gates[0], s[1])))
	return b.Add(fresh, b.Gated(op.Sigmoid, gates[1], b.Sub(h, fresh)))
}
