package train

import (
	"fmt"

	"spillway/executor"
	"spillway/plan"
	"spillway/weights"
)

// withAverage calls f while the weights of a run that keeps an average of them are that average.
func (t *Trainer) withAverage(f func() error) error {
	if t.run.Options.Average == 0 {
		return f()
	}
	// Swapping writes what is journaled. A kill meanwhile leaves what was committed.
	if err := t.begin(t.done + 1); err != nil {
		return err
	}
	e := t.run.Executor()
	if err := swapAverages(e); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err // ends the run
	}
	return swapAverages(e)
}

// swapAverages puts each average where the weight is and the weight where the average is, a param at a time, so that it takes no
// memory to speak of. Both are in f32, where there are master weights in those, so that twice is nothing.
func swapAverages(e *executor.Executor) error {
	main, computed := map[string]executor.Tensor{}, map[string]executor.Tensor{}
	for _, w := range e.Weights() {
		main[w.Param.Name] = w
	}
	for _, s := range e.States() {
		if s.State == executor.Master {
			computed[s.Param.Name], main[s.Param.Name] = main[s.Param.Name], s
		}
	}
	for _, average := range e.States() {
		if average.State != plan.Average {
			continue
		}
		name := average.Param.Name
		own, err := weights.ReadF32(e, main[name])
		if err != nil {
			return fmt.Errorf("reading the weights of %s: %w", name, err)
		}
		mean, err := weights.ReadF32(e, average)
		if err == nil {
			err = writeF32(e, average, own)
		}
		if err == nil {
			err = writeF32(e, main[name], mean)
		}
		if rounded, has := computed[name]; has && err == nil {
			err = writeF32(e, rounded, mean)
		}
		if err != nil {
			return fmt.Errorf("putting the average of %s in its place: %w", name, err)
		}
	}
	return nil
}

// writeF32 fills a tensor with numbers, rounded to its type.
func writeF32(e *executor.Executor, t executor.Tensor, values []float32) error {
	width := t.Type.DType.Bytes(1)
	return e.Write(t, func(offset int64, chunk []byte) error {
		first := offset / width
		t.Type.DType.Encode(chunk, values[first:first+int64(len(chunk))/width])
		return nil
	})
}
