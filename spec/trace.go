package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
)

// Trace turns model code into a model for one micro-batch size and task. Name and
// arch become the model's own. Blocks that record the same program, but for the names of
// their params, become one kind.
func Trace(name, arch string, m nn.Model, c graph.Config) (*Model, error) {
	t := tracer{
		model:        &Model{Name: name, Arch: arch, Config: c},
		params:       map[string]int{},
		batchTensors: map[string]int{},
		kinds:        map[string]int{},
		kindNames:    map[string]bool{},
		moved:        map[string][]string{},
	}
	if err := t.trace(m); err != nil {
		return nil, fmt.Errorf("tracing %s: %w", name, err)
	}
	return t.model, nil
}

type tracer struct {
	model        *Model
	bound        map[string]*nn.Param // what the model holds, by name
	params       map[string]int       // place in model.Params, by name
	batchTensors map[string]int       // place in model.Batch, by name
	kinds        map[string]int       // place in model.Kinds, by key of the program
	kindNames    map[string]bool      // names of kinds that are taken
	moved        map[string][]string  // the blocks that move a running statistic, by its name
	key          []byte               // scratch memory of the method kind
}

func (t *tracer) trace(m nn.Model) error {
	if err := checkConfig(t.model.Config); err != nil {
		return err
	}
	bound, err := nn.Bind(m)
	if err != nil {
		return err
	}
	t.bound = make(map[string]*nn.Param, len(bound))
	for _, p := range bound {
		t.bound[p.Name] = p
	}
	if err := t.blocks(m.Blocks()); err != nil {
		return err
	}
	t.weighStatistics()
	t.narrowBatch()
	for _, p := range bound {
		if _, used := t.params[p.Name]; !used && t.model.Config.Task == graph.Train { // heads of one's own may be for training only
			return fmt.Errorf("param %s %v is in the model, but no block uses it; use it, or take the hf tag off its field", p.Name, p.Shape)
		}
	}
	return t.model.Verify()
}

func checkConfig(c graph.Config) error {
	switch {
	case c.MicroBatchSize < 1 || c.Seq < 1:
		return fmt.Errorf("a micro-batch of %d samples of %d positions; both must be at least 1", c.MicroBatchSize, c.Seq)
	case !c.DType.Float() || c.DType.Block():
		return fmt.Errorf("cannot compute with element type %v; use f32, bf16 or f16", c.DType)
	}
	switch c.Task {
	case graph.Infer, graph.Eval, graph.Train:
		if c.Cache != nil {
			return fmt.Errorf("the task %s has no cache of keys and values", c.Task)
		}
		return nil
	case graph.Generate:
		switch {
		case c.Cache == nil:
			return fmt.Errorf("the task %s needs a cache of keys and values", c.Task)
		case c.MicroBatchSize != 1 || c.Packed:
			return fmt.Errorf("a step of generation is rows of any sequences, not %d samples or packed documents", c.MicroBatchSize)
		}
		return c.Cache.Check()
	}
	return fmt.Errorf("unknown task %q; known are %s, %s, %s, %s", c.Task, graph.Infer, graph.Eval, graph.Train, graph.Generate)
}

func (t *tracer) blocks(blocks []nn.Block) error {
	var carry []op.Type
	var adds []bool // of the values that are carried: see graph.Program.AddUp
	seen := map[string]bool{}
	for i, b := range blocks {
		if seen[b.Name] {
			return fmt.Errorf("two blocks are named %q", b.Name)
		}
		seen[b.Name] = true
		role := graph.Carry
		if i == len(blocks)-1 {
			role = graph.Result
		}
		p, err := t.program(b, i, role, carry)
		if err != nil {
			return err
		}
		if adds = p.AddUp(adds); role == graph.Result && t.hasLoss() && !slices.Equal(adds, []bool{true}) {
			p.WholeBatch = true // or some of it would be of each micro-batch, and their sum the loss
		}
		if err := t.statistics(b.Name, p); err != nil {
			return fmt.Errorf("block %s: %w", b.Name, err)
		}
		if err := t.add(b.Name, p); err != nil {
			return fmt.Errorf("block %s: %w", b.Name, err)
		}
		carry = outputTypes(p)
	}
	return nil
}

// hasLoss says that the last block ends in a loss.
func (t *tracer) hasLoss() bool {
	c := t.model.Config
	return c.Task == graph.Eval || c.Task == graph.Train && !c.Outputs
}

// program runs the code of one block.
func (t *tracer) program(block nn.Block, place int, role graph.Role, carry []op.Type) (*graph.Program, error) {
	c := t.model.Config
	if c.Outputs && c.Task == graph.Train && role == graph.Result {
		c.Task = graph.Infer
	}
	b := graph.NewBlockBuilder(block.Name, c, place)
	in := make([]graph.Value, len(carry))
	for i, c := range carry {
		in[i] = b.Input(c)
	}
	out, err := forward(block, b, in)
	if err != nil {
		return nil, err
	}
	if c.Task != t.model.Config.Task && len(out) == 1 {
		out[0] = b.Cast(out[0], dtype.F32) // whose gradient comes with the batch
	}
	p, err := b.Program(role, out...)
	if err != nil {
		return nil, err
	}
	return graph.FuseNorms(p), nil
}

// forward calls the code of a block. One that panics is a mistake with the line that did.
func forward(block nn.Block, b *graph.Builder, in []graph.Value) (out []graph.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (the block before returns %d values)", b.Panicked(p), len(in))
		}
	}()
	return slices.Clone(block.Forward(b, in)), nil
}

func outputTypes(p *graph.Program) []op.Type {
	types := make([]op.Type, 0, len(p.Outputs))
	for _, out := range p.Outputs {
		if out.Role != graph.Cache {
			types = append(types, p.Type(out.Value))
		}
	}
	return types
}

// add appends a traced block with its kind, its params and its tensors of the batch.
func (t *tracer) add(name string, p *graph.Program) error {
	block := Block{Name: name}
	for _, port := range p.Inputs {
		typ := p.Type(port.Value)
		switch port.Role {
		case graph.Param:
			i, err := t.param(port, typ)
			if err != nil {
				return err
			}
			block.Params = append(block.Params, i)
		case graph.Batch:
			if err := t.batchTensor(port.Name, typ); err != nil {
				return err
			}
		}
	}
	block.Kind = t.kind(name, p)
	t.model.Blocks = append(t.model.Blocks, block)
	return nil
}

func (t *tracer) param(port graph.Port, typ op.Type) (int, error) {
	i, known := t.params[port.Name]
	if !known {
		p := t.bound[port.Name]
		if p == nil {
			return 0, fmt.Errorf("param %s is not part of the model; every field on the way to it needs an hf tag", port.Name)
		}
		i = len(t.model.Params)
		t.params[port.Name] = i
		t.model.Params = append(t.model.Params, Param{Name: port.Name, Type: typ, Frozen: port.Frozen, Momentum: p.Momentum, Init: p.Init})
	}
	return i, nil
}

func (t *tracer) batchTensor(name string, typ op.Type) error {
	i, known := t.batchTensors[name]
	if !known {
		t.batchTensors[name] = len(t.model.Batch)
		t.model.Batch = append(t.model.Batch, BatchTensor{Name: name, Type: typ})
		return nil
	}
	if had := t.model.Batch[i].Type; !had.Equal(typ) {
		return fmt.Errorf("batch part %s is %v here and %v in an earlier block", name, typ, had)
	}
	return nil
}

// narrowBatch has floats of a batch that all blocks cast to one 16-bit type come in that type: the host rounds them as
// a cast does, and half of the bytes cross the link.
func (t *tracer) narrowBatch() {
	for i, tensor := range t.model.Batch {
		if tensor.Type.DType != dtype.F32 || tensor.Type.Shape.Elements() == 1 { // single numbers are the loop's
			continue
		}
		to, all := dtype.Invalid, true
		for _, k := range t.model.Kinds {
			cast, reads, only := graph.CastOf(k.Program, tensor.Name)
			all = all && (!reads || only && (to == dtype.Invalid || cast == to))
			if reads {
				to = cast
			}
		}
		if !all || to != dtype.BF16 && to != dtype.F16 {
			continue
		}
		t.model.Batch[i].Type.DType = to
		for n, k := range t.model.Kinds {
			if _, reads, _ := graph.CastOf(k.Program, tensor.Name); reads {
				t.model.Kinds[n].Program = graph.WithoutCasts(k.Program, tensor.Name, to)
			}
		}
	}
}

// kind finds the kind of a program, or makes it.
func (t *tracer) kind(block string, p *graph.Program) int {
	t.key = appendProgram(t.key[:0], p)
	if i, ok := t.kinds[string(t.key)]; ok {
		return i
	}
	p.Name = t.kindName(block)
	i := len(t.model.Kinds)
	t.kinds[string(t.key)] = i
	t.model.Kinds = append(t.model.Kinds, Kind{Name: p.Name, Program: p})
	return i
}

// kindName is the block's name without its number: "model.layers"; a second kind of
// the same name is "model.layers#2".
func (t *tracer) kindName(block string) string {
	base := block
	if dot := strings.LastIndexByte(block, '.'); dot > 0 {
		if _, err := strconv.Atoi(block[dot+1:]); err == nil {
			base = block[:dot]
		}
	}
	name := base
	for n := 2; t.kindNames[name]; n++ {
		name = fmt.Sprintf("%s#%d", base, n)
	}
	t.kindNames[name] = true
	return name
}
