package run

import (
	"cmp"
	"slices"

	"spillway/dtype"
	"spillway/nn"
	"spillway/plan"
	"spillway/quant"
)

// interleaves says whether weights may be held with rows interleaved: only to compute with, on a
// CPU, in 16 bits.
func (m *Model) interleaves(o Options) bool {
	if m.shared || o.Task != Infer && o.Task != Generate || o.interleaved {
		return false
	}
	o, err := o.withDefaults(m)
	return err == nil && o.Precision != dtype.F32 && o.computesOnCPU()
}

// readsDisk says whether something is stored on disk. Weights there are best read from the files
// of the model, which have no interleaved rows.
func readsDisk(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Arenas, func(a plan.Arena) bool { return a.Tier == plan.OnDisk && a.Bytes > 0 })
}

// onlyLinears lists the weights of linear layers, each once, that are no embedding too.
func onlyLinears(net nn.Model) (list []*nn.Param, err error) {
	others := map[*nn.Param]bool{}
	err = nn.Walk(net, func(_ string, part any) error {
		switch l := part.(type) {
		case *nn.Linear:
			list = append(list, l.Weight)
		case *nn.Embedding:
			others[l.Weight] = true
		}
		return nil
	})
	slices.SortFunc(list, func(a, b *nn.Param) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(slices.Compact(list), func(p *nn.Param) bool { return others[p] }), err
}

// interleaveLinears has linear weights held with rows interleaved, where their shape allows that: those that are held in the type that
// is computed in, and quantized ones that no folder has, which are made as they are held.
func interleaveLinears(net nn.Model, precision dtype.Type, made bool) error {
	linears, err := onlyLinears(net)
	for _, p := range linears {
		held := cmp.Or(p.Storage, precision)
		if kind, fits := quant.Interleaved(held, p.Shape.Rows(), p.Shape.Last()); fits && (p.Storage == dtype.Invalid || made) {
			p.Storage, p.Frozen = kind, true
		}
	}
	return err
}
