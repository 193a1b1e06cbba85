package sim

import (
	"time"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/quant"
	"spillway/units"
)

// Timing says how long calls take on a described device that computes in one type. Rates of
// zero count as infinitely fast.
type Timing struct {
	machine.Device
	matmul    units.Flops       // matmuls and attention, in bursts
	sustained units.Flops       // the same without pauses
	matmulF32 units.Flops       // those on f32 operands, where most are narrower; 0: the same
	vector    units.Flops       // everything else
	tables    machine.ByVariant // of the type
}

// vectorShare is the arithmetic rate of elementwise ops as a share of that of matmuls on a
// CPU. On a GPU they run at the rate of f32, on the ordinary cores.
const vectorShare = 0.1

// NewTiming is the timing of a device that computes in t.
func NewTiming(d machine.Device, t dtype.Type) *Timing {
	x := &Timing{Device: d, matmul: d.Compute.Rate(t), sustained: d.Sustained.Or(d.Compute).Rate(t), vector: d.Compute.F32, tables: d.Tables[t.String()]}
	if t != dtype.F32 {
		x.matmulF32 = d.Compute.Rate(dtype.F32)
	}
	if d.Kind == machine.CPU {
		x.vector = units.Flops(vectorShare * float64(d.Compute.F32))
	}
	return x
}

// Time is how long a call takes: what was measured of it, what its table says, or the longer
// of its arithmetic and its memory traffic. Matmuls thinner than any in their table are bound
// by that traffic too.
func (x *Timing) Time(c op.Call) time.Duration { return x.call(c).Device }

// call is what a call takes of the device and of the thread that launches it. Where the
// device is not at hand, all launches take the same.
func (x *Timing) call(c op.Call) machine.CallTime {
	if x.Calls != nil {
		if t, measured := x.Calls.Time(c); measured {
			return t
		}
	}
	return machine.CallTime{Device: x.assumed(c), Launch: x.Launch}
}

// assumed is the time of a call that follows from tables and rates.
func (x *Timing) assumed(c op.Call) time.Duration {
	cost := c.Cost()
	matmul, tables := x.matmul, x.tables
	if cost.Matrix && x.isF32(c) {
		matmul, tables = x.matmulF32, nil // tables are of the narrower type
	}
	if table, measured := tables.Of(c); measured {
		took := cost.Amount() / table.At(c.Sizes())
		if cost.Matrix && x.Bandwidth > 0 {
			took = max(took, float64(cost.Bytes)/float64(x.Bandwidth))
		}
		return max(x.shortest(), time.Duration(took*float64(time.Second)))
	}
	if format, packed := packedMatmul(c); packed && x.Kind == machine.GPU && x.Kernel > 0 && x.Bandwidth > 0 {
		return x.packedMatmul(cost, format)
	}
	flops, e := x.vector, machine.Efficiency{Memory: 1, Compute: 1, Work: 1}
	if cost.Matrix {
		flops = matmul
	}
	if x.Kernel > 0 {
		e = x.Efficiency(c)
	}
	var t float64
	if flops > 0 {
		t = e.Work * cost.Flops / (e.Compute * float64(flops))
	}
	if x.Bandwidth > 0 {
		t = max(t, float64(cost.Bytes)/(e.Memory*float64(x.Bandwidth)))
	}
	return x.shortest() + e.Start + time.Duration(t*float64(time.Second))
}

// isF32 says whether the operands are f32 on a device that mostly computes in a narrower type.
func (x *Timing) isF32(c op.Call) bool {
	return x.matmulF32 > 0 && len(c.In) > 0 && c.In[0].DType == dtype.F32
}

// shortest is what the smallest kernel takes.
func (x *Timing) shortest() time.Duration {
	if x.Kernel > 0 {
		return x.Kernel
	}
	return x.Launch
}

// packedRows is up to how many rows kernels of GPUs decode weights as they multiply.
const packedRows = 16

// packedMatmul says whether a call multiplies few rows with weights in a block format, and with which.
func packedMatmul(c op.Call) (format dtype.Type, ok bool) {
	weight := 1
	switch c.Kind {
	case op.QuantizedMatmul, op.QuantizedPlus:
	case op.NormHeads, op.NormGated:
		weight = 2
	default:
		return format, false
	}
	format = c.In[weight].DType
	return format, format.Block() && c.In[0].Shape.Rows() <= packedRows
}

// packedMatmul is the time of such a call in a graph.
func (x *Timing) packedMatmul(cost op.Cost, format dtype.Type) time.Duration {
	share := machine.PackedRead
	if quant.FourBitOf(format) != nil {
		share = machine.PackedLookup
	}
	t := float64(cost.Bytes) / (share * float64(x.Bandwidth))
	if x.vector > 0 {
		t = max(t, cost.Flops/(machine.PackedCompute*float64(x.vector)))
	}
	return x.shortest() + time.Duration(t*float64(time.Second))
}
