package op

import (
	"fmt"

	"spillway/dtype"
)

// Counted tells targets that count from ignored ones: ids as they are or 0 for op.IgnoreIndex, and 1 or
// 0. Attr.Length is how many classes there are.
//
//	operand   ids i32
//	outputs   ids i32, counts f32
const Counted Kind = "counted"

func init() {
	Register(Op{Kind: Counted, Takes: 1, Infer: inferCounted, Reference: referenceCounted,
		IDs: func(c Call) IDs { return IDs{Operand: 0, Count: c.Attr.Length, AllowsIgnored: true} },
		Cases: func(l *CaseList) {
			ids := Integers(func(i int, u float64) int32 {
				if i%3 == 1 {
					return IgnoreIndex
				}
				return int32(u * 50)
			}, 3, 37)
			l.Add("3x37", Counted, Attr{Length: 50}, ids)
		}})
}

func inferCounted(a Attr, in []Type) ([]Type, error) {
	if in[0].DType != dtype.I32 || a.Length <= 0 {
		return nil, fmt.Errorf("%v of %d classes, want i32 and some classes", in[0], a.Length)
	}
	return []Type{in[0], {dtype.F32, in[0].Shape}}, nil
}

func referenceCounted(_ Call, in, out []Array, _ Args) {
	for i, id := range in[0].I {
		out[0].I[i], out[1].F[i] = id, 1
		if id == IgnoreIndex {
			out[0].I[i], out[1].F[i] = 0, 0
		}
	}
}
