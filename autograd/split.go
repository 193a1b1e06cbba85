package autograd

import (
	"fmt"
	"slices"

	"spillway/graph"
	"spillway/op"
)

// set of values.
type set map[graph.Value]bool

// Saved lists the forward values, not inputs, that gradient nodes read, in the
// order they are made. Saving all of them leaves nothing to recompute.
func (j *Joint) Saved() []graph.Value {
	read := reads(j.Program.Nodes[j.Forward:])
	return slices.DeleteFunc(j.made(), func(v graph.Value) bool { return !read[v] })
}

// Split makes the two programs of a block when the forward values keep are saved for the
// backward pass. What the gradients need beyond that is recomputed in the backward program,
// by the same nodes on the same inputs, from the carries, params, batch tensors, constants
// and saved values. accumulate says whether the gradient of a param is added to what is
// there; nil for never.
//
// Values have the joint's numbers in both programs. The forward program outputs its carries
// or result, then the Saved ports; the backward program takes those Saved ports that it
// reads. The index of a Saved port is its position in keep.
func (j *Joint) Split(keep []graph.Value, accumulate func(param int) bool) (forward, backward *graph.Program, err error) {
	kept, err := j.savedPorts(keep)
	if err != nil {
		return nil, nil, err
	}
	gradients := len(j.Outputs) // where they start among the outputs
	outputs := append(slices.Clone(j.Program.Outputs[:gradients]), kept...)
	forward = j.extract("forward", j.Program.Nodes[:j.Forward], nil, outputs)
	backward = j.extract("backward", j.Program.Nodes, kept, j.Program.Outputs[gradients:])
	accumulateInto(backward, accumulate)
	if err := forward.Verify(); err != nil {
		return nil, nil, err
	}
	return forward, backward, backward.Verify()
}

// Merged is forward and backward in one program: the last block, where nothing
// lies between. It gives the loss as Result, then the gradients.
func (j *Joint) Merged(accumulate func(param int) bool) (*graph.Program, error) {
	if j.Loss == 0 {
		return nil, fmt.Errorf("program %s gives no loss: only the last block runs forward and backward as one", j.Program.Name)
	}
	outputs := slices.Clone(j.Program.Outputs)
	outputs[0].Value = j.Loss
	p := j.extract("training", j.Program.Nodes, nil, outputs)
	accumulateInto(p, accumulate)
	return p, p.Verify()
}

// made lists what the forward nodes make, in order.
func (j *Joint) made() (all []graph.Value) {
	for _, n := range j.Program.Nodes[:j.Forward] {
		all = append(all, n.Out...)
	}
	return all
}

func (j *Joint) savedPorts(keep []graph.Value) ([]graph.Port, error) {
	made := j.made()
	ports := make([]graph.Port, len(keep))
	for i, v := range keep {
		switch {
		case !slices.Contains(made, v):
			return nil, fmt.Errorf("program %s: value %d cannot be saved, the forward nodes do not make it", j.Program.Name, v)
		case slices.Contains(keep[:i], v):
			return nil, fmt.Errorf("program %s: value %d is saved twice", j.Program.Name, v)
		}
		ports[i] = graph.Port{Value: v, Role: graph.Saved, Index: i}
	}
	return ports, nil
}

// extract takes from nodes those that the outputs need when the saved values are given. A
// node that must run for another of its outputs makes a saved value again, which is then no
// input.
func (j *Joint) extract(name string, nodes []graph.Node, kept, outputs []graph.Port) *graph.Program {
	given, wanted, made := set{}, set{}, set{}
	for _, port := range kept {
		given[port.Value] = true
	}
	for _, port := range outputs {
		wanted[port.Value] = true
	}
	p := &graph.Program{Name: j.Program.Name + " " + name, Types: slices.Clone(j.Program.Types), Outputs: slices.Clone(outputs)}
	for _, n := range slices.Backward(nodes) {
		if !slices.ContainsFunc(n.Out, func(v graph.Value) bool { return wanted[v] && !given[v] }) {
			continue
		}
		n = again(n, given)
		p.Nodes = append(p.Nodes, n)
		for _, v := range n.In {
			wanted[v] = true
		}
		for _, v := range n.Out {
			made[v] = true
		}
	}
	slices.Reverse(p.Nodes)
	for _, port := range slices.Concat(j.Program.Inputs, kept) {
		if wanted[port.Value] && !made[port.Value] {
			p.Inputs = append(p.Inputs, port)
		}
	}
	return p
}

// again is what makes a node's outputs once more when some of them were saved: a norm whose statistics were
// reads them.
func again(n graph.Node, given set) graph.Node {
	if n.Kind != op.GroupNorm || !given[n.Out[1]] || !given[n.Out[2]] {
		return n
	}
	in := n.In
	if n.Attr.Running {
		in, n.Attr.Running = in[:len(in)-2], false
	}
	n.Kind, n.In, n.Out = op.GroupNormAgain, append(slices.Clone(in), n.Out[1], n.Out[2]), n.Out[:1]
	return n
}

func reads(nodes []graph.Node) set {
	read := set{}
	for _, n := range nodes {
		for _, v := range n.In {
			read[v] = true
		}
	}
	return read
}

// accumulateInto makes the gradients of the params that accumulate selects add to what is
// there: in the node that makes them where its kind can, else by a copy behind it.
func accumulateInto(p *graph.Program, accumulate func(param int) bool) {
	adding := map[graph.Value]*graph.Port{}
	for i, port := range p.Outputs {
		if port.Role == graph.GradParam && accumulate != nil && accumulate(port.Index) {
			adding[port.Value] = &p.Outputs[i]
		}
	}
	read := reads(p.Nodes)
	nodes := p.Nodes
	p.Nodes = nil
	for _, n := range nodes {
		inPlace := addsInPlace(n, adding, read)
		n.Attr.Accumulate = n.Attr.Accumulate || inPlace
		p.Nodes = append(p.Nodes, n)
		for _, v := range n.Out {
			if port, ok := adding[v]; ok && !inPlace {
				p.Types = append(p.Types, p.Types[v])
				port.Value = graph.Value(len(p.Types) - 1)
				p.Nodes = append(p.Nodes, graph.Node{Kind: op.Copy, Attr: op.Attr{Accumulate: true}, In: []graph.Value{v}, Out: []graph.Value{port.Value}, At: n.At})
			}
		}
	}
}

// addsInPlace reports whether a node can add by itself: all outputs that it would add to are
// gradients to be added, and nothing else reads them.
func addsInPlace(n graph.Node, adding map[graph.Value]*graph.Port, read set) bool {
	able := n.Kind.Accumulates(n.Attr)
	for _, i := range able {
		if adding[n.Out[i]] == nil || read[n.Out[i]] {
			return false
		}
	}
	for i, v := range n.Out {
		if adding[v] != nil && !slices.Contains(able, i) {
			return false
		}
	}
	return len(able) > 0
}
