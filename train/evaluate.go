package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"spillway/executor"
	"spillway/plan"
)

// Evaluation computes the loss on data that is not trained on. It is a phase of the
// training run's plan (Options.Evaluates): between two iterations, with the weights where
// they are, in the memory that training has.
type Evaluation struct {
	Every   int64 // iterations between evaluations; 0: only after the last, which is always evaluated
	Feed    Feed  // evaluated from its current position to its end
	Batches int64 // the largest number of batches, each of as many sequences as a step has; 0 means all
	// Patience ends the run after this many evaluations in a row that are no better than
	// the best before them; 0 means never.
	Patience int64
	// KeepBest saves a checkpoint with every evaluation that is the best so far, and does
	// not remove it, however many follow.
	KeepBest bool

	start json.RawMessage // position of the feed where every evaluation begins
}

// Loss returns the mean loss over all tokens of the feed that are in the loss. Each
// micro-batch of the plan has a mean of its own, so that missing ones at the end of the
// feed count for nothing. The plan trains and has the phase, or is of the task eval.
func (v *Evaluation) Loss(e *executor.Executor) (mean float64, err error) {
	evaluate := func() error {
		if e.Plan().Optimizer == nil {
			return e.Iterate(context.Background(), executor.IterationArgs{})
		}
		return e.RunPhase(context.Background(), plan.Evaluate, executor.IterationArgs{})
	}
	if v.start == nil {
		v.start, err = v.Feed.Position()
	} else {
		err = v.Feed.Seek(v.start)
	}
	var sum float64
	var filled, counted int64
	most := v.Batches * int64(e.Plan().MicroBatches)
	for more := true; more && err == nil; {
		var counts []int64
		for more && len(counts) < e.Plan().MicroBatches && (most == 0 || filled < most) {
			count, err := v.fill(e, len(counts))
			if more = !errors.Is(err, io.EOF); !more {
				break
			}
			if err != nil {
				return 0, fmt.Errorf("micro-batch %d: %w", filled, err)
			}
			counts = append(counts, count)
			filled++
		}
		if len(counts) == 0 {
			break
		}
		if err = e.CheckBatch(); err == nil {
			err = evaluate()
		}
		for j, count := range counts {
			sum += float64(e.Result(j)[0]) * float64(count)
			counted += count
		}
	}
	if err == nil && counted == 0 {
		err = fmt.Errorf("the evaluation data has nothing to predict")
	}
	return sum / float64(counted), err
}

// fill fills a micro-batch with the next batch, and returns the number of tokens in its
// loss.
func (v *Evaluation) fill(e *executor.Executor, micro int) (int64, error) {
	parts := PartsOf(e)
	parts.MicroBatches, parts.Part = 1, func(_ int, name string) ([]byte, error) { return e.BatchTensor(micro, name) }
	filled, err := v.Feed.Next(parts)
	if err != nil {
		return 0, err
	}
	_, err = setScalars(e, micro, map[string]float32{"scale": meanOver(filled.Counted), sampleScale: meanOver(e.Plan().MicroBatchSize)})
	return filled.Counted, err
}

// BatchLoss returns the loss of the batch that is in place in an executor of the task
// eval, the mean of so many numbers.
func BatchLoss(e *executor.Executor, counted int64) (float64, error) {
	for j := range e.Plan().MicroBatches {
		if _, err := setScalars(e, j, map[string]float32{"scale": meanOver(counted), sampleScale: meanOver(samplesOf(e))}); err != nil {
			return 0, err
		}
	}
	err := e.Iterate(context.Background(), executor.IterationArgs{})
	return e.Loss(), err
}
