package train

import "fmt"

// Iterations returns the number of iterations done.
func (t *Trainer) Iterations() int64 { return t.done }

// SetIterations sets the number of iterations done, for a run whose weights and states
// come from elsewhere. The learning rate, Adam's bias correction and the random streams
// depend on it.
func (t *Trainer) SetIterations(iterations int64) error {
	if iterations < 0 {
		return fmt.Errorf("%d iterations done: it cannot be negative", iterations)
	}
	t.done = iterations
	return nil
}
