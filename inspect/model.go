package inspect

import (
	"fmt"

	"spillway/arch"
	"spillway/shape"
	"spillway/spec"
)

// Model counts what a model consists of.
type Model struct {
	Name        string `json:"name"`
	Arch        string `json:"arch"`
	Params      int64  `json:"params"`
	Trainable   int64  `json:"trainable"`
	Blocks      int    `json:"blocks"`       // of the most common size: the layers
	BlockParams int64  `json:"block_params"` // of one of them
	Vocabulary  int64  `json:"vocabulary,omitempty"`
	Context     int64  `json:"context,omitempty"`
}

// DescribeModel counts what a traced model consists of.
func DescribeModel(info arch.Info, m *spec.Model) Model {
	r := Model{Name: m.Name, Arch: info.Type, Vocabulary: info.Vocab, Context: info.Context, Params: m.Count(), Trainable: m.Trainable()}
	times := map[string]int{} // by the shapes of their params: layers with and without a window are alike, and those in other types
	for _, b := range m.Blocks {
		var shapes []shape.Shape
		for _, id := range b.Params {
			shapes = append(shapes, m.Params[id].Type.Shape)
		}
		key := fmt.Sprint(shapes)
		if times[key]++; times[key] > r.Blocks {
			r.Blocks, r.BlockParams = times[key], paramsOf(m, b)
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
