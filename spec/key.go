package spec

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// appendProgram encodes everything that makes two programs differ: all but its name, the
// names of its params and the lines of code. Blocks whose programs have the same encoding
// are of the same kind. Every list is preceded by its length, so that no two different
// programs share an encoding.
func appendProgram(k []byte, p *graph.Program) []byte {
	k = appendInt(k, len(p.Types))
	for _, t := range p.Types {
		k = appendShape(append(k, byte(t.DType)), t.Shape)
	}
	k = appendPorts(k, p.Inputs)
	k = appendInt(k, len(p.Nodes))
	for _, n := range p.Nodes {
		k = appendAttr(appendString(k, string(n.Kind)), n.Attr)
		k = appendValues(k, n.In)
		k = appendValues(k, n.Out)
	}
	return appendPorts(k, p.Outputs)
}

func appendPorts(k []byte, ports []graph.Port) []byte {
	k = appendInt(k, len(ports))
	for _, p := range ports {
		k = appendInt(appendInt(k, int(p.Value)), p.Index)
		k = appendString(k, string(p.Role))
		if p.Role != graph.Param {
			k = appendString(k, p.Name)
		}
		k = appendBools(k, p.Frozen)
		k = appendString(k, string(p.Data))
	}
	return k
}

func appendAttr(k []byte, a op.Attr) []byte {
	k = appendBools(k, a.TransA, a.TransB, a.Bias, a.Plus, a.Accumulate, a.InputOnly, a.Causal,
		a.Segments, a.KeyMask, a.Mask, a.Inverse, a.Constant, a.Exact, a.AnyOrder, a.Second, a.KeepDims, a.Log, a.WholeBatch, a.Running, a.AlignCorners)
	k = append(k, byte(a.Func), byte(a.To), byte(a.Func2), byte(a.Reduction), byte(a.Resampling))
	for _, f := range [...]float64{a.Eps, a.Scale, a.Prob, a.OutlierThreshold, a.Alpha, a.Beta} {
		k = binary.LittleEndian.AppendUint64(k, math.Float64bits(f))
	}
	for _, n := range [...]int64{a.Heads, a.KVHeads, a.Window, a.Document, int64(a.Stream), a.Rows, a.InnerDims, a.Axis, a.Dims, a.Start, a.Step, a.Length} {
		k = binary.AppendVarint(k, n)
	}
	k = appendInt(k, len(a.Extra))
	for _, name := range slices.Sorted(maps.Keys(a.Extra)) {
		k = binary.LittleEndian.AppendUint64(appendString(k, name), math.Float64bits(a.Extra[name]))
	}
	k = appendSpatial(k, a.Spatial)
	return appendShape(appendShape(appendShape(k, a.Sizes), a.Shape), a.Axes)
}

func appendSpatial(k []byte, s op.Spatial) []byte {
	k = appendBools(k, s.Ceil, s.CountPadding, s.Adaptive)
	for _, list := range [][]int64{s.Kernel, s.Stride, s.Padding, s.Dilation, {s.Groups}} {
		k = appendShape(k, list)
	}
	return k
}

func appendShape(k []byte, s shape.Shape) []byte {
	k = appendInt(k, len(s))
	for _, d := range s {
		k = binary.AppendVarint(k, d)
	}
	return k
}

func appendValues(k []byte, vs []graph.Value) []byte {
	k = appendInt(k, len(vs))
	for _, v := range vs {
		k = appendInt(k, int(v))
	}
	return k
}

func appendInt(k []byte, n int) []byte { return binary.AppendVarint(k, int64(n)) }

func appendString(k []byte, s string) []byte { return append(appendInt(k, len(s)), s...) }

func appendBools(k []byte, flags ...bool) []byte {
	for _, f := range flags {
		b := byte(0)
		if f {
			b = 1
		}
		k = append(k, b)
	}
	return k
}
