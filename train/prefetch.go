package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"spillway/autograd"
	"spillway/executor"
	"spillway/internal/stopwatch"
)

// Where the plan has memory for it (plan.PrefetchesBatch), the batch of the next iteration is made and sent to
// the device while one runs. Where it has not, a batch whose copying takes long is at least put in place on the host. Nothing depends on whether it was: a checkpoint has the position before a batch
// that no iteration has had, and a batch that cannot be made meanwhile is made again, with the error, when its
// iteration begins.

// prefetched is a batch that was made while the iteration before ran.
type prefetched struct {
	at       *executor.Executor // that has it
	filled   Filled
	writes   int             // of batches, of that executor; where it is only in place on the host
	position json.RawMessage // of the feed before it
}

// SometimesReady is a feed that cannot always give its next batch while an iteration runs.
type SometimesReady interface {
	Feed
	// Ready says whether it can now. It is asked in every iteration, also where Next is not called then.
	Ready() bool
}

// leastPrepared is the size of batches from which on they are put in place during the iteration before, where they are not sent then:
// below, that takes some microseconds.
const leastPrepared = 1 << 20

// Prefetched says whether the batch of the next iteration is on its way to the device, or in place.
func (t *Trainer) Prefetched() bool {
	e := t.run.Executor()
	return t.ahead != nil && t.ahead.at == e && (e.PrefetchesBatch() || t.ahead.writes == e.BatchWrites())
}

// prepares says whether the next batch is made while an iteration runs.
func (t *Trainer) prepares() bool {
	e, bytes := t.run.Executor(), int64(0)
	for _, tensor := range t.run.Plan.Batch {
		bytes += tensor.Type.Bytes()
	}
	return e.PrefetchesBatch() || e.PreparesBatch() && bytes*int64(t.run.Plan.MicroBatches) >= leastPrepared
}

// DropPrefetched has the next iteration work on a batch that is made when it begins. The feed goes back to it.
func (t *Trainer) DropPrefetched() error {
	if t.ahead == nil {
		return nil
	}
	t.ahead.at.DropUpload()
	err := t.feed.Seek(t.ahead.position)
	t.ahead = nil
	return err
}

// Position is where in the feed the next iteration begins.
func (t *Trainer) Position() (json.RawMessage, error) {
	if t.ahead != nil {
		return t.ahead.position, nil
	}
	return t.feed.Position()
}

// nextBatch puts the batch of the next iteration in place, unless it is there. io.EOF means that there is none.
func (t *Trainer) nextBatch() (f Filled, err error) {
	if t.Prefetched() {
		f, t.ahead = t.ahead.filled, nil
		return f, nil
	}
	if err = errors.Join(t.missed, t.DropPrefetched()); err == nil {
		f, err = t.makeBatch()
	}
	t.missed = nil
	if errors.Is(err, io.EOF) {
		return f, io.EOF
	}
	if err != nil {
		return f, fmt.Errorf("the batch of iteration %d: %w", t.done+1, err)
	}
	if f.Counted == 0 {
		return f, t.nothingToLearn()
	}
	return f, nil
}

// makeBatch fills in what comes next in the feed.
func (t *Trainer) makeBatch() (Filled, error) {
	e := t.run.Executor()
	f, err := t.feed.Next(PartsOf(e))
	if err == nil && f.Counted > 0 {
		err = e.CheckBatch()
	}
	return f, err
}

// prefetch makes the batch of the iteration after the one that runs, and sends it, unless an evaluation comes between,
// which uses the same memory of the host.
func (t *Trainer) prefetch() {
	e := t.run.Executor()
	feed, sometimes := t.feed.(SometimesReady)
	if sometimes && !feed.Ready() || !t.prepares() || t.done+1 == t.c.Iterations || t.evaluationDue(t.done+1) {
		return
	}
	position, err := t.feed.Position()
	if err != nil {
		return
	}
	began := stopwatch.Now()
	filled, err := t.makeBatch()
	t.pace.madeAhead(began)
	if err == nil && filled.Counted > 0 {
		_, err = t.setBatchScalars(filled, 1)
	}
	if err == nil && filled.Counted > 0 {
		err = e.Upload()
	}
	if err != nil || filled.Counted == 0 { // the next iteration meets what is wrong
		t.missed = t.feed.Seek(position)
		return
	}
	t.ahead = &prefetched{e, filled, e.BatchWrites(), position}
}

// setBatchScalars sets the numbers that the loop adds to a batch, whose gradients are multiplied by a weight. The
// loss is the mean over all micro-batches together, so each is scaled by the count of the whole iteration. changed
// says whether they were others.
func (t *Trainer) setBatchScalars(f Filled, weight float64) (changed bool, err error) {
	e := t.run.Executor()
	values := map[string]float32{"scale": meanOver(f.Counted), sampleScale: meanOver(samplesOf(e)), autograd.LossScale: t.lossScale() * float32(weight)}
	for j := 0; j < t.run.Plan.MicroBatches && err == nil; j++ {
		var other bool
		other, err = setScalars(e, j, values)
		changed = changed || other
	}
	return changed, err
}

// lossScale is what the loss of the next iteration is multiplied by.
func (t *Trainer) lossScale() float32 {
	if t.scale == nil {
		return 1
	}
	return float32(t.scale.Scale)
}
