package train

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/executor"
	"spillway/hf"
	"spillway/optim"
	"spillway/run"
	"spillway/tensorfile"
)

// Save says where checkpoints go and when they are made. The last iteration is always
// saved.
type Save struct {
	Dir   checkpoint.Dir
	Every int64 // iterations between checkpoints; 0: only at the end
	// Model has the files of a checkpoint in addition to the weights: config and tokenizer.
	Model hf.Model
	// Claimed says that the caller holds Dir.Claim already; else Run does while it trains.
	Claimed bool
	// Elsewhere are folders for the last checkpoint if it cannot be saved to Dir; nil means
	// the current folder, the home folder and that of temporary files.
	Elsewhere []string
	// Adapter is the config of the adapters, if adapters are trained. A checkpoint is then
	// an adapter's folder, without the frozen weights.
	Adapter *hf.AdapterConfig
}

// state is what a checkpoint has in addition to tensors.
type state struct {
	Iteration             int64           `json:"iteration"`
	Optimizer             optim.Config    `json:"optimizer"`
	Schedule              optim.Schedule  `json:"schedule"`
	Clip                  float64         `json:"clip"`
	Seed                  uint64          `json:"seed"`
	SequencesPerIteration int64           `json:"sequences_per_iteration"`
	MicroBatchSize        int64           `json:"micro_batch_size"` // gradients are summed by micro-batches
	CanonicalSums         bool            `json:"canonical_sums,omitempty"`
	Groups                []optim.Group   `json:"groups,omitempty"`
	Average               float64         `json:"average,omitempty"` // decay of the average of weights
	Freeze                []string        `json:"freeze,omitempty"`
	Centralize            bool            `json:"centralize,omitempty"`
	Feed                  json.RawMessage `json:"feed"`
	Adapter               adapterSettings `json:"adapter,omitempty"`
	// LossScale of the next iteration, if the loss is scaled.
	LossScale *optim.LossScale `json:"loss_scale,omitempty"`
	// Best is the best evaluation so far, if any; Evaluated the last iteration evaluated.
	Best      *Best `json:"best,omitempty"`
	Evaluated int64 `json:"evaluated,omitempty"`
	// Policy for compressing states, if any, and its progress.
	Policy      *optim.Policy      `json:"policy,omitempty"`
	Compression *optim.Compression `json:"compression,omitempty"`
}

// MicroBatchSize is how many sequences a micro-batch of the run had that saved a checkpoint.
// Gradients are summed by micro-batches, so a run that goes on with others has other bits.
func MicroBatchSize(path string) (int64, error) {
	var s state
	text, err := os.ReadFile(filepath.Join(path, checkpoint.TrainerName))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s.MicroBatchSize, err
}

func (t *Trainer) state() (state, error) {
	feed, err := t.Position()
	p, o := t.run.Plan, t.run.Options
	s := state{Iteration: t.done, Optimizer: o.Optimizer, Schedule: t.c.Schedule, Clip: o.MaxNorm(), Seed: t.c.Seed, SequencesPerIteration: p.MicroBatchSize * int64(p.MicroBatches), MicroBatchSize: p.MicroBatchSize, CanonicalSums: p.CanonicalSums,
		Groups: o.Groups, Average: o.Average, Freeze: o.Freeze, Centralize: o.Centralize, Feed: feed, LossScale: t.scale, Best: t.best, Evaluated: t.evaluated}
	if o.StatePolicy != (optim.Policy{}) {
		s.Policy, s.Compression = &o.StatePolicy, &t.wanted
	}
	if err == nil && t.run.Adapts() {
		s.Adapter, err = t.adapterSettings()
	}
	return s, err
}

// save writes a checkpoint if one is due, or if must is set and the current iteration
// has none. Where that fails the run goes on and tries again after some iterations.
func (t *Trainer) save(must bool) error {
	s := t.c.Save
	due := s != nil && (must || s.Every > 0 && t.done%s.Every == 0 || t.retryAt > 0 && t.done >= t.retryAt)
	if !due || t.saved == t.done {
		return nil
	}
	err := t.saveTo(s.Dir)
	var diverged *DivergedError
	if err == nil || errors.As(err, &diverged) {
		return err
	}
	t.failures++
	t.retryAt = t.done + 1<<min(t.failures-1, maxRetryShift)
	t.c.Notice(fmt.Sprintf("%v; the run goes on, and tries again after step %d", err, t.retryAt))
	return nil
}

// A save that failed is tried again after 1, 2, 4, ... 1024 iterations; the last one after
// as many times saveWait, and lastSaves times.
const (
	maxRetryShift = 10
	lastSaves     = 4
)

var saveWait = time.Second

// SavedElsewhereError says that the last checkpoint is not where it was to be saved.
type SavedElsewhereError struct {
	Path string // of the checkpoint
	Err  error  // why it is not in its folder
}

func (e *SavedElsewhereError) Error() string {
	return fmt.Sprintf("%v; the checkpoint is at %s instead: resume with --out %s --resume, or move it", e.Err, e.Path, filepath.Dir(e.Path))
}

func (e *SavedElsewhereError) Unwrap() error { return e.Err }

// saveLast writes the checkpoint that a run ends with, whatever happens to its folder: it
// tries several times, then elsewhere.
func (t *Trainer) saveLast() (err error) {
	if t.c.Save == nil || t.saved == t.done {
		return nil
	}
	s := *t.c.Save
	var diverged *DivergedError
	for n := range lastSaves {
		if err = t.saveTo(s.Dir); err == nil || errors.As(err, &diverged) || s.Dir.FS != nil {
			return err
		}
		if n+1 < lastSaves {
			t.c.Notice(fmt.Sprintf("%v; trying again", err))
			time.Sleep(saveWait << n)
		}
	}
	if s.Elsewhere == nil {
		home, _ := os.UserHomeDir() // "" is the current folder
		s.Elsewhere = []string{".", home, os.TempDir()}
	}
	for _, dir := range s.Elsewhere {
		other := checkpoint.Dir{Path: filepath.Join(dir, fmt.Sprintf("%s-rescued-%d", filepath.Base(s.Dir.Path), os.Getpid()))}
		failed := t.saveTo(other)
		if failed == nil {
			return &SavedElsewhereError{t.last, err}
		}
		t.c.Notice(fmt.Sprint(failed))
	}
	return err
}

// saveTo writes a checkpoint. Older ones that cannot be removed are a notice.
func (t *Trainer) saveTo(dir checkpoint.Dir) error {
	s := t.c.Save
	now, err := t.state()
	if err != nil {
		return err
	}
	snapshot := checkpoint.Snapshot{Iteration: t.done, Model: s.Model, State: t.sources(states(t.run.Executor())), Trainer: now}
	snapshot.Model.Tensors = t.sources(t.weights())
	if s.Adapter != nil {
		snapshot.Adapter = &hf.Adapter{Config: s.Adapter, Tensors: snapshot.Model.Tensors}
	}
	dir.Damaged = t.damaged
	if t.keepsBest() && t.best != nil {
		dir.AlwaysKeep = t.best.Iteration
		if t.outOfPatience() {
			snapshot.Best = t.best.Iteration
		}
	}
	path, err := dir.Save(snapshot)
	if path == "" {
		return err
	}
	if t.last, t.saved, t.failures, t.retryAt = path, t.done, 0, 0; err != nil {
		t.c.Notice(err.Error())
	}
	if t.c.Saved != nil {
		t.c.Saved(t.done, path)
	}
	return nil
}

// CheckpointBytes returns the size of the tensors of a run's checkpoints.
func CheckpointBytes(r *run.Run) (bytes int64) {
	for _, s := range r.Plan.Slabs {
		for _, q := range s.Params {
			if !q.Frozen() || !r.Adapts() {
				bytes += q.Type.Bytes()
			}
			if !q.Frozen() && s.Pieces[0].Master >= 0 {
				bytes += dtype.F32.Bytes(q.Type.Shape.Elements())
			}
			for _, state := range q.States {
				bytes += state.Bytes()
			}
		}
	}
	return bytes
}

// weights returns the weights that checkpoints have: all, or only the adapters.
func (t *Trainer) weights() []executor.Tensor {
	all := t.run.Executor().Weights()
	if t.c.Save.Adapter == nil {
		return all
	}
	return slices.DeleteFunc(all, func(w executor.Tensor) bool { return w.Param.Frozen() })
}

// sources returns tensors that a checkpoint reads out of the executor. A NaN in a
// tensor makes saving fail, so that a bad checkpoint never replaces a good one.
func (t *Trainer) sources(tensors []executor.Tensor) []tensorfile.Output {
	list := make([]tensorfile.Output, len(tensors))
	for i, from := range tensors {
		list[i] = tensorfile.Output{Name: fileName(from), Type: from.Type.DType, Shape: from.Type.Shape, Write: func(w io.Writer) error {
			return t.run.Executor().Read(from, func(_ int64, chunk []byte) error {
				if !allFinite(from.Type.DType, chunk) {
					return &DivergedError{Iteration: t.done, Param: fileName(from), Checkpoint: t.last}
				}
				_, err := w.Write(chunk)
				return err
			})
		}}
	}
	return list
}

// allFinite reports whether no element is a NaN or an infinity, whose exponents are all
// ones. Elements of other types count as finite.
func allFinite(t dtype.Type, raw []byte) bool {
	switch t {
	case dtype.F32:
		for ; len(raw) >= 4; raw = raw[4:] {
			if binary.LittleEndian.Uint32(raw)&0x7f800000 == 0x7f800000 {
				return false
			}
		}
	case dtype.BF16:
		for ; len(raw) >= 2; raw = raw[2:] {
			if binary.LittleEndian.Uint16(raw)&0x7f80 == 0x7f80 {
				return false
			}
		}
	case dtype.F16:
		for ; len(raw) >= 2; raw = raw[2:] {
			if binary.LittleEndian.Uint16(raw)&0x7c00 == 0x7c00 {
				return false
			}
		}
	}
	return true
}

// fileName returns a tensor's name in a checkpoint: "exp_avg.<param>" for state.
func fileName(t executor.Tensor) string {
	if t.State == "" {
		return t.Param.Name
	}
	return t.State + "." + t.Param.Name
}

// resume continues from the newest checkpoint or from the journal, if there is either.
// If both are of the same iteration, the journal wins.
func (t *Trainer) resume() (err error) {
	var c *checkpoint.Checkpoint // the newest, nil if there is none
	if t.c.Save != nil {
		if c, err = t.c.Save.Dir.Latest(); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
	}
	if c != nil {
		defer func() { err = errors.Join(err, c.Close()) }()
		t.damaged = c.Damaged
		for _, skipped := range c.Skipped {
			t.c.Notice(fmt.Sprintf("going on from %s, an older checkpoint: %v", c.Path, skipped))
		}
	}
	recovered, err := t.recover(c)
	if err != nil || recovered {
		return err
	}
	if c != nil {
		if err := t.restoreCheckpoint(c); err != nil {
			return fmt.Errorf("from %s: %w", c.Path, err)
		}
	}
	return t.commit()
}

func (t *Trainer) restoreCheckpoint(c *checkpoint.Checkpoint) error {
	if err := t.restoreState(c.Trainer, c.Iteration, c.Adapter); err != nil {
		return err
	}
	if err := t.begin(t.done); err != nil {
		return err
	}
	t.last, t.saved = c.Path, t.done
	return errors.Join(restore(t.run.Executor(), t.weights(), c.Tensor), restore(t.run.Executor(), states(t.run.Executor()), c.State.Tensor))
}

// states returns the optimizer states in types that files have: 8-bit states are split
// into their codes, a byte each, and their scales.
func states(e *executor.Executor) (list []executor.Tensor) {
	for _, t := range e.States() {
		list = append(list, t.Plain()...)
	}
	return list
}

// restoreState restores the state of the loop. It refuses the state of a run with other
// settings, which would continue differently. adapter is what is saved next to it, nil where nothing is.
func (t *Trainer) restoreState(raw []byte, iteration int64, adapter *hf.AdapterFolder) error {
	var was state
	if err := json.Unmarshal(raw, &was); err != nil {
		return fmt.Errorf("%s: %w", checkpoint.TrainerName, err)
	}
	if was.Iteration != iteration {
		return fmt.Errorf("%s is of iteration %d, the weights are of %d", checkpoint.TrainerName, was.Iteration, iteration)
	}
	now, err := t.state()
	if err != nil {
		return err
	}
	if was.Adapter == nil && adapter != nil { // saved before states had them
		if was.Adapter, err = settingsOf(adapter.Config); err != nil {
			return err
		}
	}
	if was.Adapter == nil {
		now.Adapter = nil
	} else if _, known := was.Adapter[quantization]; !known {
		delete(now.Adapter, quantization)
	}
	now.Iteration, now.Feed, now.Best, now.Evaluated = was.Iteration, was.Feed, was.Best, was.Evaluated
	if now.LossScale != nil && was.LossScale != nil {
		now.LossScale = was.LossScale
	}
	if now.Compression != nil && was.Compression != nil {
		now.Compression = was.Compression
	}
	if err := t.allow(was, now); err != nil {
		return err
	}
	if err := t.resumePolicy(was.Compression); err != nil {
		return err
	}
	if err := t.feed.Seek(was.Feed); err != nil {
		return err
	}
	t.done, t.scale, t.best, t.evaluated = was.Iteration, was.LossScale, was.Best, was.Evaluated
	return nil
}

// restore reads tensors into the executor bit for bit.
func restore(e *executor.Executor, tensors []executor.Tensor, find func(string) (tensorfile.Tensor, bool)) error {
	for _, t := range tensors {
		from, ok := find(fileName(t))
		if !ok {
			return fmt.Errorf("it has no tensor %s", fileName(t))
		}
		if from.Type != t.Type.DType || !from.Shape.Equal(t.Type.Shape) {
			return fmt.Errorf("its tensor %s is %v%v, the plan has %v; plan with the same precision and the same optimizer", fileName(t), from.Type, from.Shape, t.Type)
		}
		err := e.Write(t, func(offset int64, chunk []byte) error {
			_, err := from.ReadAt(chunk, offset)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
