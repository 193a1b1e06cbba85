package executor

import (
	"errors"
	"fmt"

	"spillway/plan"
)

// The batch of the next iteration may come to the devices while one runs (plan.PrefetchesBatch). When all
// instructions of an iteration are with the queues, the host has time to put the next batch in place
// (IterationArgs.Meanwhile), and Upload sends it on its way. The iteration after it takes it from where it
// landed. A batch that was not sent before is sent when its iteration begins.
//
// Where the devices have no memory for a second batch, the host may put the next one in place as soon as the copies of the one
// before are done (PreparesBatch).
//
// Copies of batches are given to queues apart from everything else, so that they are no part of a captured
// graph: those that take a batch before it, those that bring the next one behind it.

// nextBatch is what is known of the batch of the next iteration.
type nextBatch struct {
	sent    bool // it is on the devices, or on its way to them
	running bool // copies from where the host puts batches may not be done
}

// batchCopies are the instructions of a program that copy batches.
type batchCopies struct {
	takes, brings []int
	reads         []int // from the host, for their own iteration
	// prepares: when the copies from the host are done nothing looks there any more, and one learns of it.
	prepares bool
}

func findBatchCopies(p *plan.Plan) (b batchCopies) {
	for i := range p.Instructions {
		switch s := &p.Instructions[i]; {
		case p.TakesBatch(s):
			b.takes = append(b.takes, i)
		case p.BringsNextBatch(s):
			b.brings = append(b.brings, i)
		case p.ReadsHostBatch(s):
			b.reads = append(b.reads, i)
		}
	}
	b.prepares = len(b.brings) == 0 && len(b.reads) > 0 && !p.Captured && !p.UsesHostBatch()
	return b
}

// PreparesBatch says whether the batch of the next iteration can be put in place while one runs (BatchTensor), though it is not sent
// before that iteration begins. Whoever puts another batch there meanwhile puts it in place of that one: see BatchWrites.
func (r *runner) PreparesBatch() bool { return r.main.copies.prepares }

// PrefetchesBatch says whether the batch of the next iteration can come while one runs.
func (r *runner) PrefetchesBatch() bool { return len(r.main.copies.brings) > 0 }

// Upload sends the batch that is in place to the devices, for the next Iterate. Where the plan does not
// prefetch batches, or one is on its way already, it does nothing.
func (r *runner) Upload() error {
	if !r.PrefetchesBatch() || r.next.sent {
		return nil
	}
	for _, i := range r.main.copies.brings {
		if err := r.issue(r.main, &r.main.plan.Instructions[i], &r.main.instructions[i]); err != nil {
			return fmt.Errorf("sending the next batch: %w", err)
		}
	}
	r.next = nextBatch{sent: true, running: true}
	return nil
}

// DropUpload has the next Iterate work on the batch that is in place then, whatever was sent before.
func (r *runner) DropUpload() { r.next.sent = false }

// takeBatch has an iteration begin with the batch that was sent, or that is sent now.
func (r *runner) takeBatch(p *program) error {
	if p == r.main && r.PreparesBatch() {
		r.next.running = true
	}
	if p != r.main || !r.PrefetchesBatch() {
		return nil
	}
	for _, i := range p.copies.takes {
		if err := r.issue(p, &p.plan.Instructions[i], &p.instructions[i]); err != nil {
			return fmt.Errorf("issuing instruction %d (%s): %w", i, plan.Move, err)
		}
	}
	r.next = nextBatch{running: true}
	return nil
}

// awaitBatchCopies waits until nothing reads the memory any more into which the host puts batches, and
// returns errors of what did.
func (r *runner) awaitBatchCopies() (met error) {
	if !r.next.running {
		return nil
	}
	r.next.running = false
	of := &r.main.copies
	for _, i := range of.brings {
		c := &r.main.instructions[i]
		met = errors.Join(met, c.queue.SyncTo(c.last), c.queue.SyncTo(c.done))
	}
	for _, i := range of.reads {
		c := &r.main.instructions[i]
		met = errors.Join(met, c.queue.SyncTo(c.done))
	}
	return met
}

// batchArrived returns errors of the copies that brought the batch of an iteration that has ended.
func (r *runner) batchArrived() (met error) {
	for _, i := range r.main.copies.brings {
		c := &r.main.instructions[i]
		met = errors.Join(met, c.queue.SyncTo(c.last))
	}
	return met
}
