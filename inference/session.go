package inference

import (
	"spillway"
	"spillway/generate"
)

// generateOptions are those of the task that generates.
func (m *Model) generateOptions(size Size) spillway.Options {
	return spillway.Options{Task: spillway.Infer, Seq: size.Context}
}

// newSession makes the engine of a run.
func newSession(r *spillway.Run) (generate.Engine, error) { return generate.NewPlain(r) }
