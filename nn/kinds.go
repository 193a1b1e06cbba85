package nn

// NormParams are the weights and biases of a model's norms, those without a name left out. Running statistics are
// none.
func NormParams(m Model) []*Param {
	return namedParams(m, func(part any) []*Param {
		switch n := part.(type) {
		case *RMSNorm:
			return []*Param{n.Weight}
		case *LayerNorm:
			return []*Param{n.Weight, n.Bias}
		case *GroupNorm:
			return []*Param{n.Weight, n.Bias}
		case *BatchNorm:
			return []*Param{n.Weight, n.Bias}
		}
		return nil
	})
}

// EmbeddingParams are the tables of a model's embeddings.
func EmbeddingParams(m Model) []*Param {
	return namedParams(m, func(part any) []*Param {
		if e, ok := part.(*Embedding); ok {
			return []*Param{e.Weight}
		}
		return nil
	})
}

// namedParams collects the params that have names of all parts of a model.
func namedParams(m Model, of func(part any) []*Param) (params []*Param) {
	// What Bind accepted is walked without an error.
	_ = Walk(m, func(_ string, part any) error {
		for _, p := range of(part) {
			if p != nil && p.Name != "" {
				params = append(params, p)
			}
		}
		return nil
	})
	return params
}
