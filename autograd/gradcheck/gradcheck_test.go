package gradcheck_test

import (
	"strings"
	"testing"

	"spillway/autograd"
	"spillway/autograd/gradcheck"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// cube is an op with a rule that is wrong by a factor: 2·x² instead of 3·x².
const cube op.Kind = "gradcheck_cube"

func init() {
	op.Register(op.Op{Kind: cube, Takes: 1,
		Infer: func(_ op.Attr, in []op.Type) ([]op.Type, error) { return in[:1:1], nil },
		Reference: func(_ op.Call, in, out []op.Array, _ op.Args) {
			for i, x := range in[0].F {
				out[0].F[i] = x * x * x
			}
		}})
	autograd.Register(cube, func(r *autograd.Reverse, n graph.Node, dy []graph.Value) []graph.Value {
		slope := r.EmitOne(op.Scale, op.Attr{Scale: 2}, r.EmitOne(op.Mul, op.Attr{}, n.In[0], n.In[0]))
		return []graph.Value{r.EmitOne(op.Mul, op.Attr{}, dy[0], slope)}
	})
}

// A wrong rule is reported with both numbers, right ones pass.
func TestWrongGradientsAreReported(t *testing.T) {
	l := &op.CaseList{DType: dtype.F32}
	wrong := *l.Add("wrong", cube, op.Attr{}, l.X(3, 5))
	if err := gradcheck.Case(wrong, 0, false); err == nil || !strings.Contains(err.Error(), "gradcheck_cube") || !strings.Contains(err.Error(), "differences give") {
		t.Errorf("a wrong gradient gives %v", err)
	}
	for _, right := range []*op.Case{
		l.Add("square", op.Unary, op.Attr{Func: op.Square}, l.X(3, 5)),
		l.Add("conv", op.Conv, op.Attr{Spatial: op.Spatial{Padding: []int64{1}}}, l.X(2, 5, 3), l.X(4, 3, 3)),
	} {
		if err := gradcheck.Case(*right, 0, false); err != nil {
			t.Error(err)
		}
	}
}
