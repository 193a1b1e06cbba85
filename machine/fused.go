package machine

import (
	"slices"

	"spillway/dtype"
	"spillway/op"
)

// Fuses says whether a GPU that is only described has a kernel for a fused op, as one that is at hand would answer. A test of
// device/cuda holds it against the kernels there are.
func (d Device) Fuses(c op.Call) bool {
	if d.Kind != GPU || d.Compute.BF16 == 0 || len(c.In) == 0 {
		return false
	}
	x := c.In[0]
	half := x.DType == dtype.BF16 || x.DType == dtype.F16
	lane := int64(16) / max(x.DType.Bytes(1), 1) // elements of a load
	switch c.Kind {
	case op.Sample, op.LinearPlus, op.AttendCache:
		return true
	case op.NormHeads:
		return half && c.In[6].Shape[3]%16 == 0 && c.In[5].Shape[0]%8 == 0 && fusesRows(c, c.In[2], c.In[4])
	case op.NormGated:
		many := !c.Attr.Exact && x.Shape.Rows() > 8 && x.Shape.Last()%lane == 0 && c.In[2].Shape[0]%lane == 0 && c.In[2].DType == x.DType
		return c.Attr.Func <= op.SiLU && (many || half && fusesRows(c, c.In[2], c.In[3]))
	case op.QuantizedPlus:
		return half && packed(c.In[1], x.Shape.Last())
	case op.JoinedAttention, op.JoinedAttentionGrad:
		apart := c.Apart()
		a, width := apart.Attr, apart.Sizes()[2]
		return d.Capability == hopper && half && width%16 == 0 && width >= 32 && width <= 128 && max(a.KVHeads, a.Heads) == a.KVHeads && !a.Segments && !a.Mask && a.Scale > 0
	case op.LayerNormGradPlus:
		width := c.In[1].Shape[0]
		return c.In[1].DType == x.DType && width%lane == 0 && width <= 32*lane*4
	case op.UnaryGradSums:
		return c.Attr.Func <= op.Sigmoid && x.Shape.Last()%lane == 0
	}
	return false
}

const (
	hopper = 90
	// packedWidth is what the width of packed weights is a multiple of that are read by kernels of several ops.
	packedWidth = 256
)

// fusesRows says whether a norm and the matmuls after it are one call, with weights of two types at most.
func fusesRows(c op.Call, first, second op.Type) bool {
	rows, k := c.In[0].Shape.Rows(), c.In[0].Shape.Last()
	if first.DType.Block() {
		return !c.Attr.Exact && slices.Contains([]int64{1, 2, 4, 8}, rows) && packed(first, k) && packed(second, k)
	}
	return first.DType == c.In[0].DType && second.DType == c.In[0].DType && k%8 == 0
}

// packed says whether weights of a type and width are read by kernels of several ops: all but those that are only cast.
func packed(w op.Type, k int64) bool { return k%packedWidth == 0 && w.DType.String() != "e4m3" }
