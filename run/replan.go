package run

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"spillway/optim"
	"spillway/plan"
	"spillway/rig"
	"spillway/store/journal"
	"spillway/units"
	"spillway/weights"
)

// Park moves weights and optimizer states out of the executor, to host memory or to a
// file where that is too small, and gives everything else back. A journaled run parks
// what is trained alone: the rest is loaded again.
func (r *Run) Park() error {
	if r.parked != nil {
		return nil
	}
	folder, err := r.parkingFolder()
	if err != nil {
		return err
	}
	park := weights.Park
	if r.journal != nil {
		park = weights.ParkTrained
	}
	if r.parked, err = park(r.executor, folder); err != nil {
		return err
	}
	return r.release()
}

// parkingFolder is where weights and states are parked: "" for host memory.
func (r *Run) parkingFolder() (string, error) {
	folder, need := r.Parking, weights.ParkedBytes(r.executor)
	if folder == "" {
		folder = r.Options.Disk
	}
	usable, err := r.Options.System.Usable()
	switch {
	case err == nil && need < int64(usable) || err != nil && folder == "":
		return "", nil
	case folder == "":
		return "", fmt.Errorf("the weights and the optimizer states take %v while the plan changes, and the host has %v left; name a folder for them in Disk", units.Bytes(need), usable)
	}
	return folder, os.MkdirAll(folder, 0o755)
}

// Wake gives a parked run its memory, its weights and its states again.
func (r *Run) Wake() error { return r.wake(false, "") }

// wake is Wake for a run that is journaled or not. The state in an older folder, if any,
// is what the journal replaces.
func (r *Run) wake(journaled bool, older string) error {
	if r.parked == nil {
		return nil
	}
	if err := r.claim(journaled); err != nil {
		return err
	}
	if journaled {
		r.journal = r.journal.Replaces(older)
		from, err := r.Weights()
		if err == nil {
			err = r.load(from, true)
		}
		if err != nil {
			return errors.Join(err, r.release())
		}
	}
	restore := r.parked.Restore
	if r.changed {
		restore = r.parked.RestoreChanged
	}
	if err := restore(r.executor); err != nil {
		return errors.Join(err, r.release())
	}
	parked := r.parked
	r.parked = nil
	return parked.Close()
}

// Replan carries a running run over to another plan of the same model, between two
// iterations: weights and states are the same bits. Next is asked once all memory is
// given back. Where there is no other plan that can be made and started, the run goes on
// with the one it had, and the error says why.
func (r *Run) Replan(next func() (*Run, error)) error {
	if err := r.Park(); err != nil {
		return err
	}
	was := r.Planned
	to, err := next()
	if err == nil {
		r.Planned = to.Planned
		r.changed = !was.Options.sameTensors(to.Options)
		err = r.Wake()
		if r.changed = false; err == nil {
			return nil
		}
		r.Planned = was
	}
	return errors.Join(err, r.Wake())
}

// sameTensors says whether two plans train the same params and store the same things of them.
func (o Options) sameTensors(p Options) bool {
	return o.Held == p.Held && o.Outputs == p.Outputs && (o.Average > 0) == (p.Average > 0) && slices.Equal(o.Freeze, p.Freeze)
}

// Compressed is the run once its policy has compressed the states, planned by itself;
// nil where there is no policy or it begins compressed.
func (r *Run) Compressed() (*Run, error) {
	if r.Options.StatePolicy == (optim.Policy{}) || r.Options.compressed {
		return nil, nil
	}
	if r.compressed != nil && r.compressedFrom == r.Plan && r.Options.Disk == "" { // else a disk may have filled
		return r.compressed, nil
	}
	next, err := r.Model.Plan(r.Options.compressing())
	r.compressed, r.compressedFrom = next, r.Plan
	return next, err
}

// Compress carries the run over to a plan with compressed states. A journaled run
// continues its journal in a folder inside the old one; after an error the old state is
// still there.
func (r *Run) Compress() error {
	next, err := r.Compressed()
	if err != nil || next == nil {
		return err
	}
	if r.journal == nil {
		return r.Replan(func() (*Run, error) { return next, nil })
	}
	older := r.Options.Disk
	if err := r.Park(); err != nil {
		return err
	}
	r.Planned = next.Planned
	return r.wake(true, older)
}

// Continued is options for another plan of the run: states stay compressed, and a batch
// of the same size is cut into the same micro-batches, since others would sum in another
// order.
func (r *Run) Continued(o Options) Options {
	o.compressed = r.Options.compressed
	if o.MicroBatches == 0 && o.BatchSize == r.Options.BatchSize && o.Seq == r.Options.Seq {
		o.MicroBatches = r.Plan.MicroBatches
	}
	return o
}

// CopyWeights gives a running run the weights of another run of the same model, which is
// running or parked.
func (r *Run) CopyWeights(from *Run) error {
	if from.parked != nil {
		return from.parked.Weights(r.executor)
	}
	return weights.Copy(r.executor, from.executor)
}

// StatesCompressed says whether the policy has compressed the optimizer states.
func (r *Run) StatesCompressed() bool { return r.Options.compressed }

// RequestReplan asks a training run to plan again when its iteration ends. Change gets
// the run's options, once all memory is given back, and changes them; a later request
// replaces one that waits. Where no plan can be made, the run goes on as it was and
// gives a notice. It may be called from any goroutine.
func (r *Run) RequestReplan(change func(*Options)) { r.requested.Store(&change) }

// AnswerRequest does what RequestReplan asked for, if anything. Loops call it between
// two iterations.
func (r *Run) AnswerRequest() error {
	change := r.requested.Swap(nil)
	if change == nil {
		return nil
	}
	if r.journal != nil {
		r.note("another plan was requested; the journal on disk is laid out for this one, so the run goes on: stop it and resume with other options")
		return nil
	}
	before := r.Plan
	err := r.Replan(func() (*Run, error) {
		o := r.Options
		(*change)(&o)
		return r.Model.Plan(o)
	})
	switch {
	case r.executor == nil:
		return err
	case err != nil:
		r.note("there is no other plan that can be made and started, the run goes on as before: %v", err)
	case r.Plan != before:
		r.note("planned again: now %s, before %s", r.Plan.Strategy, before.Strategy)
	}
	return nil
}

// FreeNow is a change for RequestReplan: use the memory of the computer that is free
// when it is done, more than before or less.
func FreeNow(o *Options) {
	usable, err := rig.UsableHost(o.Machine, o.System)
	if err != nil {
		return // the system does not say; starting finds out
	}
	was := o.Machine.Host.Usable
	o.Machine.Host.Usable = usable
	o.Machine.Devices = slices.Clone(o.Machine.Devices)
	for i := range o.Machine.Devices {
		if d := &o.Machine.Devices[i]; d.Shared && d.Usable >= was {
			d.Usable = usable
		}
	}
}

// NextTo plans another task of the model in the memory that the run leaves. On disk it
// has a folder of its own.
func (r *Run) NextTo(o Options) (*Run, error) {
	left := memoryOf(r.site)
	for _, a := range r.Plan.Arenas {
		switch {
		case a.Tier == plan.OnDevice:
			left.Devices[a.Device] -= a.Bytes
			if r.site.SharedMemory {
				left.Host -= a.Bytes
			}
		case a.Tier != plan.OnDisk:
			left.Host -= a.Bytes
		}
	}
	// A byte is too little for any plan, so that none left is an error too.
	for d := range left.Devices {
		left.Devices[d] = max(left.Devices[d], 1)
	}
	left.Host = max(left.Host, 1)
	o.left = &left
	if o.Disk != "" {
		o.Disk, o.scratch = journal.EvaluationDir(o.Disk), true
	}
	return r.Model.Plan(o)
}
