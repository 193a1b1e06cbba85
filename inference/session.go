package inference

import (
	"spillway"
	"spillway/generate"
	"spillway/run"
)

// generateOptions are those of the task that generates.
func (m *Model) generateOptions(size Size) spillway.Options {
	if m.s.NoCache {
		return spillway.Options{Task: spillway.Infer, Seq: size.Context}
	}
	return spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: size.Context, Streams: max(size.Streams, 1), Chunk: size.Chunk, Key: m.s.Key, Value: m.s.Value, Outputs: size.Outputs, Exact: m.s.Exact, Drafts: size.Drafts, Branches: size.Branches, Apart: size.Apart}}
}

// newEngine makes the engine of a run.
func (m *Model) newEngine(r *spillway.Run) (generate.Engine, error) {
	if m.s.NoCache {
		return generate.NewPlain(r)
	}
	return generate.NewSession(r)
}
