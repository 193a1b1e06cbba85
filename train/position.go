package train

import "fmt"

// Iterations that are done.
func (t *Trainer) Iterations() int64 { return t.done }

// GoOnFrom counts so many iterations as done, for a run whose weights and states come from
// elsewhere: rates, corrections and random streams of the next follow from it.
func (t *Trainer) SetIterations(iterations int64) error {
	if iterations < 0 {
		return fmt.Errorf("going on from iteration %d: it cannot be negative", iterations)
	}
	t.done = iterations
	return nil
}
