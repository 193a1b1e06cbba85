// Package graph holds programs: straight lists of ops over typed values, traced
// once per kind of block from ordinary Go code and known completely before
// anything runs.
package graph

import (
	"fmt"

	"spillway/op"
	"spillway/shape"
)

// Value is a number a program gives to a tensor. Zero is no value.
type Value int32

// Role says what an input or output of a program is to its surroundings.
type Role string

// The roles. Values without a role live and die inside the program.
const (
	Carry     Role = "carry"      // from block to block, forward
	Param     Role = "param"      // a weight
	Batch     Role = "batch"      // part of the batch, by name
	Const     Role = "const"      // numbers known when tracing
	Saved     Role = "kept"       // handed from forward to backward
	GradCarry Role = "grad_carry" // the gradient of a carry, from block to block, backward
	GradParam Role = "grad_param" // the gradient of a weight
	Result    Role = "result"     // what the model is run for: logits or the loss
	Partial   Role = "partial"    // a gradient's part of the squared norm
	Cache     Role = "cache"      // of a block, stored from step to step: an input, and in place an output
)

// Port is an input or output: a value with a role, and which one of that role.
type Port struct {
	Value Value  `json:"value"`
	Role  Role   `json:"role"`
	Index int    `json:"index"`          // among the ports of the same role
	Name  string `json:"name,omitempty"` // of a batch part, param or const
	// Frozen: a param that gets no gradient.
	Frozen bool `json:"frozen,omitempty"`
	// Data of a Const, as the bytes of its type.
	Data []byte `json:"data,omitempty"`
}

// Node is one op of a program.
type Node struct {
	Kind op.Kind `json:"kind"`
	Attr op.Attr `json:"attr"`
	In   []Value `json:"in"`
	Out  []Value `json:"out"`
	// At is the model code that asked for it, "file.go:12".
	At string `json:"at,omitempty"`
}

// Program is a list of nodes in the order they run. Every value is made once, by
// an input or one node, before it is used.
type Program struct {
	Name    string    `json:"name"`
	Types   []op.Type `json:"types"` // by Value; entry 0 is unused
	Inputs  []Port    `json:"inputs"`
	Nodes   []Node    `json:"nodes"`
	Outputs []Port    `json:"outputs"`
	// WholeBatch: what it computes depends on all samples of a batch together.
	WholeBatch bool `json:"whole_batch,omitempty"`
	// Results are the tensors that its result is made of, one behind the other for each sample; nil
	// where it is one.
	Results []ResultPart `json:"results,omitempty"`
}

// ResultPart is a tensor of a model with several outputs, of one sample.
type ResultPart struct {
	Name  string      `json:"name"`
	Shape shape.Shape `json:"shape"`
}

// Type of a value.
func (p *Program) Type(v Value) op.Type { return p.Types[v] }

// Call is a node with the types of its operands: what a device needs to know.
func (p *Program) Call(n Node) op.Call {
	c := op.Call{Kind: n.Kind, Attr: n.Attr, In: make([]op.Type, len(n.In)), Out: make([]op.Type, len(n.Out))}
	for i, v := range n.In {
		c.In[i] = p.Types[v]
	}
	for i, v := range n.Out {
		c.Out[i] = p.Types[v]
	}
	return c
}

// Ports of one role, in order of index.
func Ports(ports []Port, role Role) []Port {
	var out []Port
	for _, p := range ports {
		if p.Role == role {
			out = append(out, p)
		}
	}
	return out
}

// count of the ports with a role.
func count(ports []Port, role Role) (n int) {
	for i := range ports {
		if ports[i].Role == role {
			n++
		}
	}
	return n
}

// Cost is the sum over all nodes.
func (p *Program) Cost() (total op.Cost) {
	for _, n := range p.Nodes {
		c := p.Call(n).Cost()
		total.Flops += c.Flops
		total.Bytes += c.Bytes
	}
	return total
}

// Verify checks everything a device relies on: values exist, are made once and
// before use, and types follow the ops' rules. It is cheap; every reader of plans
// calls it.
func (p *Program) Verify() error {
	made := make([]bool, len(p.Types))
	define := func(v Value, what func() string) error {
		if v <= 0 || int(v) >= len(p.Types) {
			return fmt.Errorf("program %s: %s makes value %d of %d", p.Name, what(), v, len(p.Types)-1)
		}
		if made[v] {
			return fmt.Errorf("program %s: %s makes value %d a second time", p.Name, what(), v)
		}
		made[v] = true
		return p.Types[v].Shape.Check()
	}
	for _, in := range p.Inputs {
		if err := define(in.Value, func() string { return "input " + string(in.Role) }); err != nil {
			return err
		}
		if in.Role == Const && int64(len(in.Data)) != p.Types[in.Value].Bytes() {
			return fmt.Errorf("program %s: constant %s has %d bytes, its type %v needs %d", p.Name, in.Name, len(in.Data), p.Types[in.Value], p.Types[in.Value].Bytes())
		}
	}
	used := func(v Value) error {
		if v <= 0 || int(v) >= len(made) || !made[v] {
			return fmt.Errorf("program %s: value %d is used before it is made", p.Name, v)
		}
		return nil
	}
	for i, n := range p.Nodes {
		for _, v := range n.In {
			if err := used(v); err != nil {
				return fmt.Errorf("node %d %s: %w", i, n.Kind, err)
			}
		}
		for _, v := range n.Out {
			if err := define(v, func() string { return fmt.Sprintf("node %d %s", i, n.Kind) }); err != nil {
				return err
			}
		}
		if err := p.Call(n).Check(); err != nil {
			return fmt.Errorf("program %s: node %d: %w", p.Name, i, err)
		}
	}
	for _, out := range p.Outputs {
		if err := used(out.Value); err != nil {
			return fmt.Errorf("output %s: %w", out.Role, err)
		}
	}
	return nil
}
