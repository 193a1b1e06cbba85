package inspect

import (
	"spillway/arch"
	"spillway/spec"
)

// Model counts what a model consists of.
type Model struct {
	Name        string `json:"name"`
	Arch        string `json:"arch"`
	Params      int64  `json:"params"`
	Trainable   int64  `json:"trainable"`
	Blocks      int    `json:"blocks"`       // of the most common kind: the layers
	BlockParams int64  `json:"block_params"` // of one of them
	Vocabulary  int64  `json:"vocabulary,omitempty"`
	Context     int64  `json:"context,omitempty"`
}

// DescribeModel counts what a traced model consists of.
func DescribeModel(info arch.Info, m *spec.Model) Model {
	r := Model{Name: m.Name, Arch: info.Type, Vocabulary: info.Vocab, Context: info.Context, Params: m.Count(), Trainable: m.Trainable()}
	times := make([]int, len(m.Kinds))
	for _, b := range m.Blocks {
		times[b.Kind]++
		if times[b.Kind] > r.Blocks {
			r.Blocks, r.BlockParams = times[b.Kind], paramsOf(m, b)
		}
	}
	return r
}

func paramsOf(m *spec.Model, b spec.Block) (n int64) {
	for _, id := range b.Params {
		n += m.Params[id].Type.Shape.Elements()
	}
	return n
}
