package op

import (
	"fmt"

	"spillway/shape"
)

// Embedding: y[n] = table[ids[n]].
//
//	operands  ids [N] i32, table [V D], or with more outer dimensions, counted as one
//	output    [shape(ids) D]
//
// An id outside the table is an error; see Call.IDs.
const Embedding Kind = "embedding"

func init() {
	Register(Op{Kind: Embedding, Takes: 2, Infer: inferEmbedding, Cost: costEmbedding, Reference: referenceEmbedding, Cases: (*CaseList).embedding,
		IDs: func(c Call) IDs { return IDs{Operand: 0, Count: c.In[1].Shape.Rows()} }})
	Register(Op{Kind: EmbeddingGrad, Takes: 2, Infer: inferEmbeddingGrad, Cost: costEmbeddingGrad, Accumulates: firstOutput, Reference: referenceEmbeddingGrad,
		IDs: func(c Call) IDs { return IDs{Operand: 0, Count: c.Attr.Rows} }})
}

func inferEmbedding(a Attr, in []Type) ([]Type, error) {
	if err := check(ids(in, 0), float(in, 1), rank(in, 1, 2)); err != nil {
		return nil, err
	}
	if in[1].Shape.Elements() == 0 {
		return nil, fmt.Errorf("operand 1 is %v, without elements", in[1])
	}
	return []Type{{in[1].DType, append(in[0].Shape[:len(in[0].Shape):len(in[0].Shape)], in[1].Shape.Last())}}, nil
}

// EmbeddingGrad: table gradient; each row is the sum of dy over the positions
// that used it, added in order of position. Attr.Rows is V.
//
//	operands  ids, dy [shape(ids) D]
//	output    [V D]
const EmbeddingGrad Kind = "embedding_grad"

func inferEmbeddingGrad(a Attr, in []Type) ([]Type, error) {
	if err := check(ids(in, 0), float(in, 1), rank(in, 1, 1)); err != nil {
		return nil, err
	}
	if outer := in[1].Shape[:len(in[1].Shape)-1]; !outer.Equal(in[0].Shape) {
		return nil, fmt.Errorf("ids %v do not fit %v", in[0], in[1])
	}
	if a.Rows < 1 {
		return nil, fmt.Errorf("a table of %d rows", a.Rows)
	}
	return []Type{{in[1].DType, shape.Shape{a.Rows, in[1].Shape.Last()}}}, nil
}

// The table is not read whole: only the rows asked for.
func costEmbedding(c Call) Cost {
	return Cost{Bytes: c.In[0].Bytes() + 2*c.Out[0].Bytes()}
}

func costEmbeddingGrad(c Call) Cost {
	cost := Cost{Flops: float64(c.In[1].Shape.Elements()), Bytes: c.In[0].Bytes() + 3*c.In[1].Bytes()}
	if !c.Attr.Accumulate {
		cost.Bytes += c.Out[0].Bytes()
	}
	return cost
}

func referenceEmbedding(c Call, in, out []Array, _ Args) {
	d := c.In[1].Shape.Last()
	table, y := rows(in[1].F, d), rows(out[0].F, d)
	for n, id := range in[0].I {
		copy(y[n], table[clamp(id, len(table))])
	}
}

func referenceEmbeddingGrad(c Call, in, out []Array, _ Args) {
	d := c.In[1].Shape.Last()
	dy, table := rows(in[1].F, d), rows(out[0].F, d)
	clear(out[0].F)
	for n, id := range in[0].I {
		axpy(1, dy[n], table[clamp(id, len(table))])
	}
}

func clamp(id int32, rows int) int { return min(max(int(id), 0), rows-1) }

func (l *CaseList) embedding() {
	l.Add("2x3", Embedding, Attr{}, Below(7, 2, 3), l.X(7, 5))
	l.Add("1 id", Embedding, Attr{}, Below(3, 1), l.X(3, 33))
	l.Add("4x65", Embedding, Attr{}, Below(50, 4, 65), l.X(50, 24)).Large = true
	l.Both("2x3", EmbeddingGrad, Attr{Rows: 7}, Below(7, 2, 3), l.X(2, 3, 5))
	l.Both("one row many times", EmbeddingGrad, Attr{Rows: 2}, Below(1, 1, 17), l.X(1, 17, 9))
	l.Add("4x65", EmbeddingGrad, Attr{Rows: 50}, Below(50, 4, 65), l.X(4, 65, 24)).Large = true
}
