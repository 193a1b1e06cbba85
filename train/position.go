package train

import "fmt"

// Iterations is how many are done.
func (t *Trainer) Iterations() int64 { return t.done }

// SetIterations says how many iterations are done, for a run whose weights and states come
// from elsewhere: the learning rate, Adam's bias correction and random streams follow from
// it.
func (t *Trainer) SetIterations(iterations int64) error {
	if iterations < 0 {
		return fmt.Errorf("%d iterations done: it cannot be negative", iterations)
	}
	t.done = iterations
	return nil
}
