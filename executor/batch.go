package executor

import (
	"encoding/binary"
	"fmt"

	"spillway/graph"
	"spillway/op"
	"spillway/plan"
)

// batchLimits finds, for the parts of a batch that hold ids, what they may be. A part
// read by several ops obeys the narrowest.
func batchLimits(p *plan.Plan) map[string]op.IDs {
	limits := map[string]op.IDs{}
	for _, program := range p.Programs {
		g := program.Graph
		parts := map[graph.Value]string{}
		for _, port := range graph.Ports(g.Inputs, graph.Batch) {
			parts[port.Value] = port.Name
		}
		for _, n := range g.Nodes {
			ids, ok := g.Call(n).IDs()
			if !ok {
				continue
			}
			name, ok := parts[n.In[ids.Operand]]
			if had, twice := limits[name]; ok && (!twice || ids.Count < had.Count) {
				limits[name] = ids
			}
		}
	}
	return limits
}

// CheckBatch refuses ids in the parts of the batch that name nothing: kernels would
// take them for others.
func (e *Executor) CheckBatch() error {
	for _, part := range e.plan.Batch {
		limit, ok := e.limits[part.Name]
		if !ok {
			continue
		}
		for micro := range e.plan.MicroBatches {
			raw, err := e.BatchTensor(micro, part.Name)
			if err != nil {
				return err
			}
			for i := 0; i < len(raw); i += 4 {
				id := int32(binary.LittleEndian.Uint32(raw[i:]))
				if (id < 0 || int64(id) >= limit.Count) && !(limit.AllowsIgnored && id == op.IgnoreIndex) {
					return fmt.Errorf("%s: place %d of micro-batch %d holds %d, the model knows 0 to %d; do the tokenizer and the model belong together?", part.Name, i/4, micro, id, limit.Count-1)
				}
			}
		}
	}
	return nil
}
