// Package bench measures how fast this computer computes: what the command bench prints.
//
// CPU times matmuls, attention, AdamW and a training step on the CPU, and says which share
// of the hardware's peak each reaches. GPU times whole plans on a GPU, forward passes and
// training steps, and holds them against the roofline and against the forecast: the bound
// is what the link or the arithmetic alone would need, at the rates measured in the same
// run.
//
// Where Python has the libraries, baselines do the same work in turns with ours: PyTorch,
// numpy, accelerate, RamTorch and Overflow, by the programs in bench/baselines.
package bench

import (
	"slices"
	"strings"

	"spillway/rig"
)

// Options say what is measured.
type Options struct {
	Rig rig.Options
	// Python runs the baselines, whose programs are in the folder Baselines.
	Python, Baselines string
	Rounds            int    // turns that ours and the baselines take each
	Only              string // words of the rows to measure, separated by commas; "" is all
	Device            string // of GPU and Random: "cuda:0"
	Rates             string // of GPU: a file with the report of an earlier run, instead of measuring rates
	Timeline          string // of GPU: a file for the events of the last row
	// Report hears what is measured next; nil is fine.
	Report func(what string)
}

// report says what is measured next.
func (o Options) report(what string) {
	if o.Report != nil {
		o.Report(what)
	}
}

// wants says whether a row is to be measured.
func (o Options) wants(row string) bool {
	return o.Only == "" || slices.ContainsFunc(strings.Split(o.Only, ","), func(words string) bool { return strings.Contains(row, words) })
}

const giga = 1e9
