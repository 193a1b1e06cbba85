// Package spec is a model as data: its params, its blocks in order, and one program per
// kind of block. Trace makes it from model code, for one micro-batch size and task. It is
// all that the planner knows of a model.
package spec

import (
	"fmt"

	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

// Model is a traced model.
type Model struct {
	Name   string        `json:"name"` // "llama-3-8b" or the folder's name
	Arch   string        `json:"arch"` // "llama"
	Config graph.Config  `json:"config"`
	Params []Param       `json:"params"`
	Blocks []Block       `json:"blocks"`
	Kinds  []Kind        `json:"kinds"`
	Batch  []BatchTensor `json:"batch"` // what a batch consists of
}

// Param is a named weight. Two blocks that name the same param share it (tied
// weights).
type Param struct {
	Name   string  `json:"name"` // as in the Hugging Face folder
	Type   op.Type `json:"type"`
	Frozen bool    `json:"frozen,omitempty"`
	// Momentum of a running statistic, see nn.Param; 0 for weights.
	Momentum float64 `json:"momentum,omitempty"`
	Init     Init    `json:"init"`
}

// Init says how a param starts when it is not read from a file.
type Init = nn.Init

// Block is the unit that streams: a layer, the embedding, the head.
type Block struct {
	Name string `json:"name"` // "model.layers.3"
	Kind int    `json:"kind"` // in Model.Kinds
	// Params has, for each param port of the kind's program by its index, the index in
	// Model.Params.
	Params []int `json:"params"`
}

// Kind is what equal blocks share. Names in its param ports are those of the
// first block of the kind.
type Kind struct {
	Name    string         `json:"name"`
	Program *graph.Program `json:"program"`
}

// BatchTensor is one tensor of a batch, the same for all blocks that read it.
type BatchTensor struct {
	Name string  `json:"name"` // "tokens", "targets", "positions", "segments", "scale", ...
	Type op.Type `json:"type"`
}

// Program of block i.
func (m *Model) Program(i int) *graph.Program { return m.Kinds[m.Blocks[i].Kind].Program }

// Count is the number of weights, tied ones counted once.
func (m *Model) Count() (n int64) {
	for _, p := range m.Params {
		n += p.Type.Shape.Elements()
	}
	return n
}

// Trainable is the number of weights that are not frozen.
func (m *Model) Trainable() (n int64) {
	for _, p := range m.Params {
		if !p.Frozen {
			n += p.Type.Shape.Elements()
		}
	}
	return n
}

// Verify checks that blocks, kinds and params fit together: carries match from
// block to block, params have the types their programs say, the last block gives
// the result.
func (m *Model) Verify() error {
	if len(m.Blocks) == 0 {
		return fmt.Errorf("model %s has no blocks", m.Name)
	}
	ports := make([]kindPorts, len(m.Kinds))
	for i, k := range m.Kinds {
		if err := k.Program.Verify(); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		ports[i] = kindPorts{graph.Ports(k.Program.Inputs, graph.Param), graph.Ports(k.Program.Inputs, graph.Carry)}
	}
	var carry []op.Type
	for i, b := range m.Blocks {
		if b.Kind < 0 || b.Kind >= len(m.Kinds) {
			return fmt.Errorf("block %s has kind %d of %d", b.Name, b.Kind, len(m.Kinds))
		}
		if err := m.verifyBlock(b, ports[b.Kind], carry); err != nil {
			return fmt.Errorf("model %s: block %s: %w", m.Name, b.Name, err)
		}
		p := m.Program(i)
		role := graph.Carry
		if i == len(m.Blocks)-1 {
			role = graph.Result
		}
		carry = carry[:0]
		caches := 0
		for _, out := range p.Outputs {
			switch out.Role {
			case role:
				carry = append(carry, p.Type(out.Value))
			case graph.Cache:
				caches++
			}
		}
		if len(carry) == 0 || len(carry)+caches != len(p.Outputs) {
			return fmt.Errorf("model %s: block %s gives %d values of role %s among %d", m.Name, b.Name, len(carry), role, len(p.Outputs))
		}
	}
	return nil
}

// kindPorts are what the program of a kind takes from outside.
type kindPorts struct{ params, carries []graph.Port }

func (m *Model) verifyBlock(b Block, ports kindPorts, carry []op.Type) error {
	p := m.Kinds[b.Kind].Program
	params := ports.params
	if len(params) != len(b.Params) {
		return fmt.Errorf("its program reads %d params, it names %d", len(params), len(b.Params))
	}
	for i, port := range params {
		if b.Params[i] < 0 || b.Params[i] >= len(m.Params) {
			return fmt.Errorf("param %d of %d", b.Params[i], len(m.Params))
		}
		if q := m.Params[b.Params[i]]; !q.Type.Equal(p.Type(port.Value)) || q.Frozen != port.Frozen {
			return fmt.Errorf("param %s is %v, its program reads %v", q.Name, q.Type, p.Type(port.Value))
		}
	}
	in := ports.carries
	if len(in) != len(carry) {
		return fmt.Errorf("it takes %d carries, the block before gives %d", len(in), len(carry))
	}
	for i, port := range in {
		if !p.Type(port.Value).Equal(carry[i]) {
			return fmt.Errorf("carry %d is %v, the block before gives %v", i, p.Type(port.Value), carry[i])
		}
	}
	return nil
}
