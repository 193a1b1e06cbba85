package run

import (
	"slices"

	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/spec"
)

// readInTurn tells a device at hand how many bytes a pass over the model reads, where nothing is trained: what the caches of a CPU
// hold is read faster.
func (q *question) readInTurn() {
	calls, depends := q.Site.Device.Calls.(machine.Reader)
	if !depends || q.options.Task.Trains() {
		return
	}
	s, err := q.Trace(1, 1)
	if err != nil { // planning will say
		return
	}
	q.Site.Device.Calls = calls.Among(bytesRead(s))
}

// bytesRead is how many bytes of weights, keys and values a pass over a model reads; of tables that are only looked up it is next
// to none.
func bytesRead(s *spec.Model) (n int64) {
	read := map[int]bool{}
	for i, b := range s.Blocks {
		p := s.Program(i)
		for _, in := range graph.Ports(p.Inputs, graph.Cache) {
			n += p.Type(in.Value).Bytes()
		}
		for _, in := range graph.Ports(p.Inputs, graph.Param) {
			if slices.ContainsFunc(p.Nodes, func(node graph.Node) bool { return node.Kind != op.Embedding && slices.Contains(node.In, in.Value) }) {
				read[b.Params[in.Index]] = true
			}
		}
	}
	for id := range read {
		n += s.Params[id].Type.Bytes()
	}
	return n
}
