// Package spectest runs whole traced models on the plain references of their ops, in
// float64: the slow, right results that architectures and runs of plans are compared
// with.
package spectest

import (
	"fmt"

	"spillway/autograd"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/op"
	"spillway/spec"
)

// Inputs of a run, by name.
type Inputs struct {
	Params map[string]op.Array
	Batch  map[string]op.Array // of the batch
	// Args of a block's launches: its random key. nil: all zero.
	Args func(block int) op.Args
}

func (in Inputs) args(block int) op.Args {
	if in.Args == nil {
		return op.Args{}
	}
	return in.Args(block)
}

// Forward runs all blocks and returns what the last one gives: logits or the loss.
func Forward(m *spec.Model, in Inputs) ([]op.Array, error) {
	carries, err := forward(m, in)
	if err != nil {
		return nil, err
	}
	return carries[len(m.Blocks)], nil
}

// forward returns what goes into each block, and at the end what comes out.
func forward(m *spec.Model, in Inputs) ([][]op.Array, error) {
	carries := make([][]op.Array, len(m.Blocks)+1)
	for i := range m.Blocks {
		p := m.Program(i)
		values, err := in.bind(m, i, p, carries[i])
		if err != nil {
			return nil, err
		}
		if values, err = graphtest.Run(p, values, in.args(i)); err != nil {
			return nil, err
		}
		for _, out := range p.Outputs {
			carries[i+1] = append(carries[i+1], values[out.Value])
		}
	}
	return carries, nil
}

// bind gives the inputs of block i their values: carries, params and tensors of the
// batch. p is its program, or one with the same ports and more.
func (in Inputs) bind(m *spec.Model, i int, p *graph.Program, carry []op.Array) (map[graph.Value]op.Array, error) {
	values := map[graph.Value]op.Array{}
	for _, port := range p.Inputs {
		var a op.Array
		switch port.Role {
		case graph.Carry:
			a = carry[port.Index]
		case graph.Param:
			a = in.Params[m.Params[m.Blocks[i].Params[port.Index]].Name]
		case graph.Batch:
			if a = in.Batch[port.Name]; port.Name == autograd.LossScale {
				a = op.Array{Type: p.Type(port.Value), F: []float64{1}}
			}
		default: // constants are in the program, gradients come from the next block
			continue
		}
		if a.F == nil && a.I == nil {
			return nil, fmt.Errorf("block %s: %s %s has no numbers", m.Blocks[i].Name, port.Role, port.Name)
		}
		a.Type = p.Type(port.Value)
		values[port.Value] = a
	}
	return values, nil
}

// Gradients runs forward and backward and returns the loss and the gradient of every
// trainable param; those of tied weights are summed.
func Gradients(m *spec.Model, in Inputs) (loss float64, grads map[string]op.Array, err error) {
	carries, err := forward(m, in)
	if err != nil {
		return 0, nil, err
	}
	grads = map[string]op.Array{}
	wanted := trainsBefore(m)
	var arriving []op.Array // gradients of what the block gives
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		if !wanted[i] && !trains(m, i) {
			break
		}
		if arriving, err = backward(m, in, i, wanted[i], carries[i], arriving, grads); err != nil {
			return 0, nil, err
		}
	}
	return carries[len(m.Blocks)][0].F[0], grads, nil
}

// trains says whether a block has anything to train.
func trains(m *spec.Model, block int) bool {
	for _, p := range m.Blocks[block].Params {
		if !m.Params[p].Frozen {
			return true
		}
	}
	return false
}

// trainsBefore says for each block whether any before it has something to train.
func trainsBefore(m *spec.Model) []bool {
	before := make([]bool, len(m.Blocks))
	for i := 1; i < len(m.Blocks); i++ {
		before[i] = before[i-1] || trains(m, i-1)
	}
	return before
}

// backward runs the gradient of block i, adds to grads and returns the gradients of
// the block's carries.
func backward(m *spec.Model, in Inputs, i int, inputGrad bool, carry, arriving []op.Array, grads map[string]op.Array) ([]op.Array, error) {
	joint, err := autograd.Differentiate(m.Program(i), autograd.Options{InputGrad: inputGrad})
	if err != nil {
		return nil, err
	}
	values, err := in.bind(m, i, joint.Program, carry)
	if err != nil {
		return nil, err
	}
	for k, a := range arriving {
		values[joint.GradOut[k]] = a
	}
	if values, err = graphtest.Run(joint.Program, values, in.args(i)); err != nil {
		return nil, err
	}
	for k, v := range joint.GradParam {
		if v != 0 {
			addTo(grads, m.Params[m.Blocks[i].Params[k]].Name, values[v])
		}
	}
	leaving := make([]op.Array, len(joint.GradIn))
	for k, v := range joint.GradIn {
		leaving[k] = values[v]
	}
	return leaving, nil
}

func addTo(grads map[string]op.Array, name string, part op.Array) {
	sum, ok := grads[name]
	if !ok {
		grads[name] = part.Clone()
		return
	}
	for i, g := range part.F {
		sum.F[i] += g
	}
}
