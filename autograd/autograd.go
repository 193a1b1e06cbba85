// Package autograd turns a block's program into its gradient program.
//
// Nothing is recorded while a model runs: the forward program is walked backwards
// once, each node's rule (rules.go) appends the nodes of its gradient, and the
// result is again a plain program. Only what leads to a trainable param or a
// wanted carry is ever written down. What the backward pass reads of the forward
// pass is then saved or recomputed, as the planner chooses (split.go).
package autograd

import (
	"fmt"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// LossScale is the batch tensor that starts the backward pass of the last block: the
// gradient of the loss, f32[1]. It is 1, or the loss scale where gradients are in fp16.
const LossScale = "loss_scale"

// OutputGradient is the batch tensor that starts it instead where the last block gives outputs and no
// loss: their gradient, of their shape.
const OutputGradient = "output_gradient"

// Options of Differentiate.
type Options struct {
	// InputGrad: the blocks before have something to train, so the gradients of
	// the carries are wanted.
	InputGrad bool
	// Outputs: the last block gives outputs, whose gradient comes with the batch.
	Outputs bool
	// Centralize: the gradient of a param of two dimensions or more has its mean over all but the first taken off. Sums of
	// such gradients are the same for their sum, so that each micro-batch can do it.
	Centralize bool
}

// Joint is a block's program with its gradient program appended, in one value space.
//
// Every gradient it gives is made by a gradient node and by no two ports at once,
// so each can have memory of its own.
type Joint struct {
	// Program holds the forward nodes, then the gradient nodes. Forward values
	// keep their numbers.
	Program *graph.Program
	// Forward is the number of forward nodes.
	Forward int
	// Outputs are the forward carries, or the loss for the last block.
	Outputs []graph.Value
	// GradOut is the gradient of each output, an input of the backward pass: a
	// GradCarry, or LossScale for the last block. 0 for outputs that are not real numbers.
	GradOut []graph.Value
	// GradIn is the gradient of each carry input, 0 where none is needed.
	GradIn []graph.Value
	// GradParam is by index of the param port, 0 for frozen ones.
	GradParam []graph.Value
	// Loss of the last block, else 0. It may come from a gradient node that
	// computes it on the way.
	Loss graph.Value
}

// Reverse is one walk back over a program. Rules write their gradient nodes with it.
type Reverse struct {
	joint     *Joint
	within    *within                     // instead of joint: the gradient is part of a block's code, see Gradient
	needs     []bool                      // by value: leads back to something that wants a gradient
	grads     map[graph.Value]graph.Value // the gradient of a value, as far as summed
	at        string                      // model code of the node being reversed
	firstNode int                         // the first node its rule made
	err       error                       // the first mistake; later emits do nothing
}

// Differentiate appends the gradient of a block's program.
func Differentiate(p *graph.Program, o Options) (*Joint, error) {
	joint := *p
	joint.Types, joint.Inputs, joint.Nodes = slices.Clone(p.Types), slices.Clone(p.Inputs), slices.Clone(p.Nodes)
	r := &Reverse{
		joint: &Joint{Program: &joint, Forward: len(p.Nodes)},
		needs: needs(p, o),
		grads: map[graph.Value]graph.Value{},
	}
	err := r.start(p.Outputs, o)
	for i := len(p.Nodes) - 1; i >= 0 && err == nil; i-- {
		if err = r.node(p.Nodes[i]); err != nil {
			err = fmt.Errorf("%s at %s: %w", p.Nodes[i].Kind, p.Nodes[i].At, err)
		}
	}
	if err == nil {
		err = r.finish(p.Inputs, o)
	}
	if err != nil {
		return nil, fmt.Errorf("gradient of program %s: %w", p.Name, err)
	}
	return r.joint, joint.Verify()
}

// needs marks the values whose gradient leads to a trainable param or, when
// asked for, a carry.
func needs(p *graph.Program, o Options) []bool {
	needs := make([]bool, len(p.Types))
	for _, in := range p.Inputs {
		real := p.Type(in.Value).DType.Float()
		needs[in.Value] = real && (in.Role == graph.Param && !in.Frozen || in.Role == graph.Carry && o.InputGrad)
	}
	for _, n := range p.Nodes {
		if rule, known := rules[n.Kind]; (rule != nil || !known) && slices.ContainsFunc(n.In, func(v graph.Value) bool { return needs[v] }) {
			for _, v := range n.Out {
				needs[v] = p.Type(v).DType.Float()
			}
		}
	}
	return needs
}

// start makes the gradients of the outputs, which come from outside.
func (r *Reverse) start(outputs []graph.Port, o Options) error {
	j := r.joint
	for i, out := range outputs {
		t := j.Program.Type(out.Value)
		port := graph.Port{Role: graph.GradCarry, Index: i}
		switch {
		case out.Role == graph.Result && o.Outputs && len(outputs) == 1 && t.DType == dtype.F32:
			j.Loss = out.Value
			port = graph.Port{Role: graph.Batch, Name: OutputGradient, Index: len(graph.Ports(j.Program.Inputs, graph.Batch))}
		case out.Role == graph.Result && (len(outputs) != 1 || !t.Equal(op.Type{DType: dtype.F32, Shape: shape.Of(1)})):
			return fmt.Errorf("its result is %v among %d, want one loss f32[1]: the last block returns its loss, such as nn.Mean of what each sample adds to it, where b.Task is not graph.Infer", t, len(outputs))
		case out.Role == graph.Result:
			j.Loss = out.Value
			port = graph.Port{Role: graph.Batch, Name: LossScale, Index: len(graph.Ports(j.Program.Inputs, graph.Batch))}
		}
		j.Outputs = append(j.Outputs, out.Value)
		if !t.DType.Float() {
			j.GradOut = append(j.GradOut, 0)
			continue
		}
		port.Value = r.value(t)
		j.Program.Inputs = append(j.Program.Inputs, port)
		j.GradOut = append(j.GradOut, port.Value)
		r.add(out.Value, port.Value)
	}
	return r.err
}

// node applies the rule of one forward node to the gradients of its outputs.
func (r *Reverse) node(n graph.Node) error {
	dy := make([]graph.Value, len(n.Out))
	reached := false
	for i, v := range n.Out {
		dy[i] = r.grads[v]
		reached = reached || dy[i] != 0
	}
	if !reached && (!moves(n) || r.within != nil) || !r.Needs(n.Out[0]) {
		return nil
	}
	rule, ok := r.rule(n.Kind)
	if !ok && strings.HasSuffix(string(n.Kind), "_grad") {
		return fmt.Errorf("is a gradient without one of its own: gradients of gradients pass linear layers, convolutions, norms, softmax, means of windows and functions")
	}
	if !ok {
		return fmt.Errorf("has no gradient rule; freeze the params before it")
	}
	if r.at = n.At; r.within == nil {
		r.firstNode = len(r.joint.Program.Nodes)
	}
	dx, err := rule.apply(r, n, dy)
	if err != nil {
		return err
	}
	for i, v := range n.In {
		if r.err != nil {
			return r.err
		}
		if dx[i] == 0 && !reached {
			continue
		}
		if r.Needs(v) && dx[i] == 0 {
			return fmt.Errorf("has no gradient for its operand %d", i)
		}
		r.add(v, dx[i])
	}
	return r.err
}

// moves says that a node moves a running statistic, whether its result leads to the loss or not.
func moves(n graph.Node) bool { return n.Kind == op.Follow || n.Kind == op.GroupNorm && n.Attr.Running }

// apply calls a rule, which may be a program's own: one that fails, or gives what are no gradients, is an error.
func (rule Rule) apply(r *Reverse, n graph.Node, dy []graph.Value) (dx []graph.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its gradient rule failed: %v", p)
		}
	}()
	if dx = rule(r, n, dy); r.err == nil && len(dx) != len(n.In) {
		return nil, fmt.Errorf("its gradient rule gives %d gradients for %d operands", len(dx), len(n.In))
	}
	for i, g := range dx {
		if r.within == nil && r.err == nil && (g < 0 || int(g) >= len(r.joint.Program.Types)) {
			return nil, fmt.Errorf("its gradient rule gives a value that there is not as the gradient of operand %d", i)
		}
	}
	return dx, r.err
}

// add puts a part of a value's gradient to what is there. Parts are summed as
// they come, in the order of the walk, so that few of them live at once.
func (r *Reverse) add(v, part graph.Value) {
	if r.err != nil || !r.Needs(v) {
		return
	}
	part = r.fit(part, r.TypeOf(v))
	if sum := r.grads[v]; sum != 0 {
		part = r.sum(sum, part)
	}
	r.grads[v] = part
}

// sum adds a part to a gradient. Where a matmul makes the part, the matmul adds it too, which
// saves a pass over both.
func (r *Reverse) sum(sum, part graph.Value) graph.Value {
	if r.within != nil {
		return r.EmitOne(op.Add, op.Attr{}, sum, part)
	}
	nodes := r.joint.Program.Nodes
	for i := r.firstNode; i < len(nodes); i++ {
		if n := &nodes[i]; n.Out[0] == part && (n.Kind == op.MatMul || n.Kind == op.ConvInput && r.joint.Program.Call(*n).Conv().Pointwise()) {
			n.Attr.Plus, n.In = true, append(n.In, sum)
			return part
		}
	}
	return r.EmitOne(op.Add, op.Attr{}, sum, part)
}

// fit casts a gradient to the element type of its value and refuses other
// differences.
func (r *Reverse) fit(g graph.Value, want op.Type) graph.Value {
	got := r.TypeOf(g)
	if !got.Shape.Equal(want.Shape) {
		r.fail(fmt.Errorf("the gradient of a %v would be %v", want, got))
		return 0
	}
	if got.DType == want.DType {
		return g
	}
	return r.EmitOne(op.Cast, op.Attr{To: want.DType}, g)
}

// finish makes ports of the gradients of the inputs.
func (r *Reverse) finish(inputs []graph.Port, o Options) error {
	r.at = ""
	j, taken := r.joint, map[graph.Value]bool{}
	for _, v := range j.GradOut {
		taken[v] = true
	}
	j.Program.Outputs = slices.Clone(j.Program.Outputs)
	give := func(in graph.Port, role graph.Role) graph.Value {
		if !r.needs[in.Value] {
			return 0
		}
		g := r.grads[in.Value]
		if g == 0 && in.Role == graph.Carry && r.reachesCarry(inputs) {
			g = r.EmitOne(op.Compare, op.Attr{Func2: op.Less}, in.Value, in.Value) // x < x: zeros, of NaN too
		}
		if g == 0 && in.Role == graph.Carry {
			r.fail(fmt.Errorf("value %d of the block before reaches no output that gradients pass through; let that block not return it, or freeze the params up to there", in.Index))
			return 0
		}
		if g == 0 {
			r.fail(fmt.Errorf("%s %d %s reaches no output, so it has no gradient; drop or freeze it, or read it in the block where it is trained", in.Role, in.Index, in.Name))
			return 0
		}
		if role == graph.GradParam && o.Centralize {
			g = r.centralized(g)
		}
		if taken[g] {
			g = r.EmitOne(op.Copy, op.Attr{}, g)
		}
		taken[g] = true
		j.Program.Outputs = append(j.Program.Outputs, graph.Port{Value: g, Role: role, Index: in.Index, Name: in.Name})
		return g
	}
	for _, in := range graph.Ports(inputs, graph.Carry) {
		j.GradIn = append(j.GradIn, give(in, graph.GradCarry))
	}
	for _, in := range graph.Ports(inputs, graph.Param) {
		j.GradParam = append(j.GradParam, give(in, graph.GradParam))
	}
	return r.err
}

// reachesCarry says that gradients pass to a value of the block before. Its other values, which are detached or not used, then have gradients
// of zeros, as in PyTorch; where none does, nothing before the block would be trained.
func (r *Reverse) reachesCarry(inputs []graph.Port) bool {
	return slices.ContainsFunc(inputs, func(in graph.Port) bool { return in.Role == graph.Carry && r.grads[in.Value] != 0 })
}

// centralized is a gradient without its mean over all dimensions but the first.
func (r *Reverse) centralized(g graph.Value) graph.Value {
	dims := len(r.TypeOf(g).Shape)
	if dims < 2 {
		return g
	}
	mean := r.EmitOne(op.Reduce, op.Attr{Reduction: op.ReduceMean, Dims: int64(dims - 1), KeepDims: true}, g)
	return r.EmitOne(op.Binary, op.Attr{Func2: op.Minus}, g, mean)
}

// Emit appends a gradient node and gives its outputs.
func (r *Reverse) Emit(kind op.Kind, attr op.Attr, in ...graph.Value) []graph.Value {
	if r.within != nil {
		return r.within.b.Apply(kind, attr, in...)
	}
	types := make([]op.Type, len(in))
	for i, v := range in {
		types[i] = r.TypeOf(v)
	}
	call, err := op.Make(kind, attr, types...)
	if err != nil {
		r.fail(err)
	}
	if r.err != nil {
		return make([]graph.Value, max(len(in), 3)) // at least what a rule takes
	}
	out := make([]graph.Value, len(call.Out))
	for i, t := range call.Out {
		out[i] = r.value(t)
	}
	p := r.joint.Program
	p.Nodes = append(p.Nodes, graph.Node{Kind: kind, Attr: attr, In: in, Out: out, At: r.at})
	return out
}

// EmitOne is Emit for ops with one output.
func (r *Reverse) EmitOne(kind op.Kind, attr op.Attr, in ...graph.Value) graph.Value {
	return r.Emit(kind, attr, in...)[0]
}

func (r *Reverse) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Needs reports whether the gradient of a value is wanted: it leads back to something
// that is trained.
func (r *Reverse) Needs(v graph.Value) bool {
	if r.within != nil {
		return r.within.needs[v]
	}
	return r.needs[v]
}

// TypeOf is the type of a value.
func (r *Reverse) TypeOf(v graph.Value) op.Type {
	if r.within != nil {
		return r.within.b.TypeOf(v)
	}
	return r.joint.Program.Types[v]
}

func (r *Reverse) value(t op.Type) graph.Value {
	p := r.joint.Program
	p.Types = append(p.Types, t)
	return graph.Value(len(p.Types) - 1)
}
