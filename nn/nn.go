// Package nn builds models as ordinary Go: layers are plain structs, and a model
// is any struct made of them.
//
// A field's `hf` tag is its part of the weights' names, as in a Hugging Face
// folder; tags join with dots and slices count, so that
//
//	type Model struct {
//		Layers []*Layer   `hf:"model.layers"`
//		Head   *nn.Linear `hf:"lm_head"`
//	}
//
// names its weights model.layers.0.…, lm_head.weight. An empty tag adds nothing,
// and `hf:"bias,optional"` lets a pointer be nil. One walk over the struct (Bind)
// finds and names all weights; there is no registration.
//
// Forward methods record ops in a graph.Builder. They return no errors: the
// builder keeps the first mistake with the line that made it.
package nn

import "spillway/graph"

// Layer maps one value to one of the same batch.
type Layer interface {
	Forward(b *graph.Builder, x graph.Value) graph.Value
}

// Model is a chain of blocks.
type Model interface {
	// Blocks in the order they run. The first takes no values and reads the batch;
	// each other takes what the one before returned; the last returns the logits
	// or the loss (graph.Config.Task says which).
	Blocks() []Block
}

// Block is the unit that streams: a layer, the embedding, the head. Equal blocks
// share one program, so weights must be reached through Param, never by name.
type Block struct {
	Name    string // unique in the model: "model.layers.3"
	Forward func(b *graph.Builder, in []graph.Value) []graph.Value
}
