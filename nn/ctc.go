package nn

import (
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// impossible is the logarithm of a probability of none. It is finite, so that gradients of sums over it are zeros and no NaN.
const impossible = -1e30

// CTC is the negative log-probability [B] of labels [B L] i32 under log-probabilities [B T C], summed over all ways to write them with
// blanks and repetitions: PyTorch's ctc_loss with reduction none. Samples have lengths of their own, [B] i32: of log-probabilities at
// least 1, of labels at least 0. Labels that cannot be written in the time there is cost 1e30, where PyTorch has infinity. PyTorch's reduction mean
// divides each by its label length first. A program has the steps of all times one after the other.
func CTC(b *graph.Builder, logp, labels, logpLengths, labelLengths graph.Value, blank int32) graph.Value {
	s, l := b.TypeOf(logp).Shape, b.TypeOf(labels).Shape
	if b.Err() != nil || len(s) != 3 || len(l) != 2 || l[0] != s[0] {
		b.Fail("ctc: %v with labels %v, want [B T C] and [B L]", b.TypeOf(logp), b.TypeOf(labels))
		return 0
	}
	if blank < 0 || int64(blank) >= s[2] {
		b.Fail("ctc: the blank is class %d of %d; it is 0 to %d", blank, s[2], s[2]-1)
		return 0
	}
	n, times, places := s[0], s[1], 2*l[1]+1
	written := withBlanks(b, labels, n, l[1], blank)
	at := b.Expand(b.Reshape(written, n, 1, places), n, times, places)
	steps := b.SplitAxis(b.Gather(b.Cast(logp, dtype.F32), -1, at), 1, slices.Repeat([]int64{1}, int(times))...)
	skips := b.Reshape(mayFollow(b, written, blank), n, 1, places)
	first := slices.Repeat([]float32{impossible}, int(places))
	first[0], first[1] = 0, 0
	alpha := b.Plus(steps[0], b.Floats("ctc start", first))
	ends := b.Reshape(counts(b, "ctc", logpLengths, n, times), n, 1, 1)
	for t := 1; t < len(steps); t++ {
		before := b.PadConstant(b.Slice(alpha, -1, 0, places-1, 1), -1, 1, 0, impossible)
		two := b.PadConstant(b.Slice(alpha, -1, 0, places-2, 1), -1, 2, 0, impossible)
		two = b.Where(skips, two, b.Number(alpha, impossible))
		next := b.Plus(steps[t], b.LogSumExp(b.Stack(0, alpha, before, two), 0))
		alpha = b.Where(b.Compare(op.Greater, ends, b.Number(ends, float64(t))), next, alpha)
	}
	last := b.Scale(b.Reshape(counts(b, "ctc", labelLengths, n, l[1]), n, 1, 1), 2) // the blank behind the last label, or that label
	place := make([]float32, places)
	for i := range place {
		place[i] = float32(i)
	}
	behind := b.Sub(last, b.Floats("ctc places", place))
	final := b.Times(b.Compare(op.GreaterEqual, behind, b.Number(behind, 0)), b.Compare(op.LessEqual, behind, b.Number(behind, 1)))
	return b.Scale(b.Reshape(b.LogSumExp(b.Where(final, alpha, b.Number(alpha, impossible)), -1), n), -1)
}

// counts are lengths [B] i32 as numbers, looked up in a table of 0 to most: so that one out of range is refused as other ids are.
func counts(b *graph.Builder, of string, lengths graph.Value, n, most int64) graph.Value {
	if t := b.TypeOf(lengths); b.Err() == nil && (t.DType != dtype.I32 || len(t.Shape) != 1 || t.Shape[0] != n) {
		b.Fail("%s: lengths are %v, want i32[%d] for as many samples", of, t, n)
		return 0
	}
	table := make([]float32, most+1)
	for i := range table {
		table[i] = float32(i)
	}
	return b.Embedding(lengths, b.Floats("counts", table, most+1, 1))
}

// withBlanks are labels [B L] with a blank before, between and behind them [B 2·L+1].
func withBlanks(b *graph.Builder, labels graph.Value, n, l int64, blank int32) graph.Value {
	none := b.Integers("blank", []int32{blank})
	pairs := b.Stack(2, labels, b.Expand(none, n, l))
	return b.ConcatAxis(1, b.Expand(none, n, 1), b.Reshape(pairs, n, 2*l))
}

// mayFollow is 1 where a label may follow the label two places before without the blank between them: where they differ.
func mayFollow(b *graph.Builder, written graph.Value, blank int32) graph.Value {
	x := b.Cast(written, dtype.F32)
	places := b.TypeOf(x).Shape.Last()
	before := b.PadConstant(b.Slice(x, 1, 0, places-2, 1), 1, 2, 0, -1)
	return b.Times(b.Compare(op.NotEqual, x, before), b.Compare(op.NotEqual, x, b.Number(x, float64(blank))))
}
