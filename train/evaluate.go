package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"spillway/executor"
	"spillway/run"
)

// Evaluation is the loss on data that is not trained on. It has a run of its own, of the
// task eval, which shares nothing with the training run but the weights it is given a
// copy of.
type Evaluation struct {
	Every   int64    // iterations; 0 after the last only, which is always evaluated
	Run     *run.Run // nil: train.Run plans one in the memory that training leaves
	Feed    Feed     // evaluated from where it stands now to its end
	Batches int64    // at most so many, 0 for all
	// Patience ends the run after so many evaluations in a row that are no better than the
	// best before them; 0 never does.
	Patience int64
	// KeepBest saves a checkpoint with every evaluation that is the best so far, and does
	// not remove it, however many follow.
	KeepBest bool

	start json.RawMessage // of the feed
}

// lossOf evaluates the weights of a training run.
func (v *Evaluation) lossOf(training *run.Run) (float64, error) {
	if err := v.Run.CopyWeights(training); err != nil {
		return 0, err
	}
	return v.Loss()
}

// Loss is the mean loss over all tokens of the feed that are in the loss, with the
// weights that the run has.
func (v *Evaluation) Loss() (float64, error) {
	if err := v.rewind(); err != nil {
		return 0, err
	}
	var sum float64
	var counted int64
	for n := int64(0); v.Batches == 0 || n < v.Batches; n++ {
		loss, count, err := v.batch()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("batch %d: %w", n, err)
		}
		sum += loss
		counted += count
	}
	if counted == 0 {
		return 0, fmt.Errorf("the evaluation data has nothing to predict")
	}
	return sum / float64(counted), nil
}

// batch returns the summed loss of the next batch, and over how many numbers.
func (v *Evaluation) batch() (float64, int64, error) {
	e := v.Run.Executor()
	filled, err := v.Feed.Next(PartsOf(e))
	if err != nil {
		return 0, 0, err
	}
	if err := e.CheckBatch(); err != nil {
		return 0, 0, err
	}
	if err := setScalars(e, map[string]float32{"scale": meanOver(filled.Counted)}); err != nil {
		return 0, 0, err
	}
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		return 0, 0, err
	}
	return e.Loss() * float64(filled.Counted), filled.Counted, nil
}

// rewind goes back to where the feed began.
func (v *Evaluation) rewind() (err error) {
	if v.start != nil {
		return v.Feed.Seek(v.start)
	}
	v.start, err = v.Feed.Position()
	return err
}
