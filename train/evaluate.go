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

// Evaluation computes the loss on data that is not trained on. It has a run of its own, of
// the task eval, which gets a copy of the training run's weights and shares nothing else.
type Evaluation struct {
	Every   int64    // iterations between evaluations; 0: only after the last, which is always evaluated
	Run     *run.Run // nil: train.Run plans one in the memory that training leaves
	Feed    Feed     // evaluated from its current position to its end
	Batches int64    // the largest number of batches; 0 means all
	// Patience ends the run after this many evaluations in a row that are no better than
	// the best before them; 0 means never.
	Patience int64
	// KeepBest saves a checkpoint with every evaluation that is the best so far, and does
	// not remove it, however many follow.
	KeepBest bool

	start json.RawMessage // position of the feed where every evaluation begins
}

// lossOf evaluates the weights of a training run.
func (v *Evaluation) lossOf(training *run.Run) (float64, error) {
	if err := v.Run.CopyWeights(training); err != nil {
		return 0, err
	}
	return v.Loss()
}

// Loss returns the mean loss over all tokens of the feed that are in the loss, with the
// current weights of the run.
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

// batch returns the summed loss of the next batch and the number of tokens in it.
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

// rewind moves the feed back to where the first evaluation began.
func (v *Evaluation) rewind() (err error) {
	if v.start != nil {
		return v.Feed.Seek(v.start)
	}
	v.start, err = v.Feed.Position()
	return err
}
