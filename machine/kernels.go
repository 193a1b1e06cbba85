package machine

import (
	"slices"
	"time"

	"spillway/dtype"
	"spillway/op"
)

// Efficiency is what a GPU's kernels of an op reach of its rates, where nobody has measured them.
type Efficiency struct {
	Memory  float64       // share of the memory's rate that large calls reach
	Compute float64       // share of the rate of large matmuls
	Start   time.Duration // what a call takes beyond the shortest kernel, whatever its size: more kernels, first and last tiles
	Work    float64       // arithmetic that is done for each operation counted: padding
}

const us = time.Microsecond

// efficiencies are those of the kernels on an H200 next to its published rates, as Device has them: lines through what calls of two
// sizes took there. Ops that are not listed reach both rates.
var efficiencies = map[op.Kind]Efficiency{
	op.Add:                    {Memory: 0.97},
	op.Mul:                    {Memory: 0.97},
	op.Copy:                   {Memory: 0.95},
	op.Gated:                  {Memory: 0.96},
	op.GatedGrad:              {Memory: 0.94},
	op.Dropout:                {Memory: 0.65, Start: 2 * us},
	op.EmbeddingGrad:          {Memory: 0.18},
	op.LayerNorm:              {Memory: 0.75, Start: 2 * us},
	op.LayerNormGrad:          {Memory: 0.6, Start: 10 * us},
	op.LayerNormGradPlus:      {Memory: 0.7, Start: 10 * us},
	op.RMSNorm:                {Memory: 0.87, Start: us},
	op.RMSNormGrad:            {Memory: 0.8, Start: 12 * us},
	op.Rope:                   {Memory: 0.85, Start: us},
	op.SumRows:                {Memory: 0.75, Start: 5 * us},
	op.SumSquares:             {Memory: 0.94, Start: 5 * us},
	op.Unary:                  {Memory: 0.85, Start: us},
	op.UnaryGrad:              {Memory: 0.85, Start: us},
	op.UnaryGradSums:          {Memory: 0.75, Start: 5 * us},
	op.Permute:                {Memory: 0.2, Start: 2 * us},
	op.MatMul:                 {Compute: 1.04, Start: 4 * us},
	op.LinearPlus:             {Compute: 1.04, Start: 4 * us},
	op.AttentionMaskGrad:      {Compute: 0.01, Start: 10 * us}, // in f32, bound by shared memory; counted, not measured
	op.LinearCrossEntropy:     {Compute: 0.9, Start: 20 * us},
	op.LinearCrossEntropyGrad: {Compute: 0.95, Start: 20 * us},
	op.AttendCache:            {Memory: 0.84},
	// Norms over groups read their operands twice, for the statistics and for the result.
	op.GroupNorm:      {Memory: 0.63, Start: 11 * us},
	op.GroupNormAgain: {Memory: 0.9, Start: 2 * us},
	op.GroupNormGrad:  {Memory: 0.6, Start: 16 * us},
	op.Pool:           {Memory: 0.55, Start: 2 * us},
	op.PoolGrad:       {Memory: 0.25, Start: 2 * us},
	op.Conv:           {Memory: 0.95, Compute: 0.72, Start: 3 * us},
	op.ConvInput:      {Memory: 0.95, Compute: 0.7, Start: 4 * us},
	op.ConvWeight:     {Memory: 0.9, Compute: 0.62, Start: 6 * us},
}

// Attention reaches less of the matmuls' rate, the less the narrower its heads are; least of it on f32 operands; and less with
// dropout.
var attentionEfficiencies = []struct {
	width             int64 // of a head, at most
	forward, backward float64
}{{64, 0.42, 0.38}, {1 << 30, 0.65, 0.5}}

const (
	wideAttention, wideAttentionGrad   = 0.15, 0.11
	attentionStart, attentionGradStart = 14 * us, 30 * us
	attentionDropout                   = 0.6
)

// amongOthers is what a kernel takes longer after another one than after itself: its instructions are fetched anew.
const amongOthers = us

// decodeRows is up to how many rows matmuls are those of decoding, which read weights from their first instruction on, and
// fewestRows up to how many they read them at the full rate.
const decodeRows, fewestRows = 256, 8

// attentionTile is how many positions attention computes at once, of which a sequence fills the last in part.
const attentionTile = 128

// fewChannels is how many channels convolutions pad the input to.
const fewChannels = 32

// Known says whether a description names a GPU whose kernels are known, by others of its maker at least.
func (d Device) Known() bool { return d.Kind == GPU && d.Capability > 0 }

// Efficiency of a call on a GPU that is described. One without a name reaches its rates: they are guesses anyway.
func (d Device) Efficiency(c op.Call) Efficiency {
	if !d.Known() {
		return Efficiency{Memory: 1, Compute: 1, Work: 1}
	}
	e := efficiencies[c.Kind]
	switch c.Kind {
	case op.MatMul, op.NormHeads, op.NormGated:
		switch rows := c.In[0].Shape.Rows(); {
		case rows <= fewestRows:
			e.Start, e.Memory = 0, 0.95
		case rows <= decodeRows:
			e.Start, e.Memory = 0, 0.87
		}
	case op.Attention, op.AttentionGrad, op.JoinedAttention, op.JoinedAttentionGrad:
		e = attentionEfficiency(c)
	case op.Conv, op.ConvInput, op.ConvWeight:
		if v := c.Conv(); v.Groups == 1 && v.C < fewChannels {
			e.Work = float64(fewChannels) / float64(v.C)
		}
	}
	if len(c.In) > 0 && len(c.In[0].Shape) > 0 && c.In[0].Shape.Rows() > decodeRows {
		e.Start += amongOthers
	}
	for _, share := range []*float64{&e.Memory, &e.Compute, &e.Work} {
		if *share == 0 {
			*share = 1
		}
	}
	return e
}

func attentionEfficiency(c op.Call) Efficiency {
	back := c.Kind == op.AttentionGrad || c.Kind == op.JoinedAttentionGrad
	if c.Kind == op.JoinedAttention || c.Kind == op.JoinedAttentionGrad {
		c = c.Apart()
	}
	forward, backward := wideAttention, wideAttentionGrad
	if c.In[0].DType != dtype.F32 {
		width := c.Sizes()[2]
		for _, a := range slices.Backward(attentionEfficiencies) {
			if width <= a.width {
				forward, backward = a.forward, a.backward
			}
		}
	}
	e := Efficiency{Compute: forward, Start: attentionStart}
	if back {
		e = Efficiency{Compute: backward, Start: attentionGradStart}
	}
	if n := c.Sizes()[0]; n > 0 && !c.Attr.Causal {
		filled := float64(n) / float64((n+attentionTile-1)/attentionTile*attentionTile)
		e.Work = 1 / (filled * filled)
	}
	if c.Attr.Prob > 0 {
		e.Compute *= attentionDropout
	}
	return e
}
