// Package checkpoint saves the state of a training run, so that after a kill, a crash or a
// full disk at any instant it goes on bit for bit.
//
// A checkpoint is a folder of its own in the run's folder:
//
//	step-00000120/
//	    config.json, model*.safetensors, tokenizer files    a model folder for anyone to load, or
//	    adapter_config.json, adapter_model.safetensors      an adapter's, where that is what is trained
//	    state.safetensors                                   optimizer state, by name
//	    trainer.json                                        whatever else the trainer needs
//	    manifest.json                                       size and checksum of all of these
//
// It is written under a hidden name and renamed once everything in it is durable, so that
// a folder with this name is always complete. Three hidden names exist for a short time:
//
//	.step-00000120.partial     being written; worthless after a crash
//	.step-00000120.replaced    the older one of two checkpoints of one iteration
//	.step-00000120.removing    being removed; worthless after a crash
//
// The next save removes what a killed one left behind.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// Names of the files a checkpoint adds to a model folder.
const (
	StateName    = "state.safetensors"
	TrainerName  = "trainer.json"
	ManifestName = "manifest.json"
)

const (
	namePrefix     = "step-"
	partialSuffix  = ".partial"
	replacedSuffix = ".replaced"
	removingSuffix = vfs.RemovingSuffix
)

// ErrNone says that a folder holds no checkpoint.
var ErrNone = errors.New("no checkpoint")

// Dir is the folder with the checkpoints of a run. One process saves to it at a time: see
// Claim.
type Dir struct {
	Path string
	Keep int // number of newest checkpoints that are not removed; 0 means all
	// AlwaysKeep is the iteration of a checkpoint that is never removed; 0 means none.
	AlwaysKeep int64
	// Damaged are paths of checkpoints that Latest skipped. They do not count as kept, and
	// are left for the user to look at.
	Damaged []string
	FS      vfs.FS // nil means the real one
}

func (d Dir) fs() vfs.FS {
	if d.FS == nil {
		return vfs.OS
	}
	return d.FS
}

// Snapshot is what Save makes a checkpoint of. Tensors are read while saving and must
// not change until Save returns.
type Snapshot struct {
	Iteration int64 // optimizer steps done
	Model     hf.Model
	Adapter   *hf.Adapter         // instead of the model, where adapters are trained
	State     []tensorfile.Output // optimizer state, named like "exp_avg.<param>"
	Trainer   any                 // saved as JSON: schedule, position in the data, seeds
	// Best is the iteration of the checkpoint to use instead, where the run stopped early; 0
	// for none.
	Best int64
}

// bytes returns the size of all tensors.
func (s Snapshot) bytes() (int64, error) {
	model, err := s.weights().Bytes()
	if err != nil {
		return 0, err
	}
	state, err := hf.Model{Tensors: s.State}.Bytes()
	return model + state, err
}

// weights returns what is written as the model's folder or as the adapter's.
func (s Snapshot) weights() interface {
	Bytes() (int64, error)
	Fill(disk vfs.FS, dir string) error
} {
	if s.Adapter != nil {
		return s.Adapter
	}
	return s.Model
}

// Entry is a checkpoint found in a folder, not yet verified.
type Entry struct {
	Path      string
	Iteration int64
	Saved     int64 // time of saving in nanoseconds since 1970; no two are equal
	Best      int64 // iteration of the checkpoint to use instead, after an early stop; 0 for none
	Err       error // why its manifest cannot be read, if so; Saved is then 0
}

// List finds the checkpoints of a run: those with an unreadable manifest first, then the
// others, newest first. They are ordered by the time of saving, since a run that went back
// to an earlier iteration has newer checkpoints of lower iterations.
func (d Dir) List() ([]Entry, error) {
	names, err := d.fs().List(d.Path)
	if err != nil {
		return nil, err
	}
	var found []Entry
	for _, n := range names {
		iteration, suffix, ok := parseName(n)
		if !ok || suffix == partialSuffix || suffix == removingSuffix {
			continue
		}
		path := filepath.Join(d.Path, n)
		m, err := readManifest(d.fs(), path)
		found = append(found, Entry{Path: path, Iteration: iteration, Saved: m.Saved, Best: m.Best, Err: err})
	}
	slices.SortFunc(found, func(a, b Entry) int {
		switch {
		case a.Err != nil && b.Err == nil:
			return -1
		case a.Err == nil && b.Err != nil:
			return 1
		}
		return cmp.Or(cmp.Compare(b.Saved, a.Saved), cmp.Compare(b.Iteration, a.Iteration))
	})
	return found, nil
}

// At returns the path of the checkpoint of an iteration.
func (d Dir) At(iteration int64) string {
	return filepath.Join(d.Path, fmt.Sprintf("%s%08d", namePrefix, iteration))
}

// hidden returns the hidden name of a path, with a suffix.
func hidden(path, suffix string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+suffix)
}

// parseName splits a name, hidden or not, into its iteration and suffix. ok is false for
// other files.
func parseName(name string) (iteration int64, suffix string, ok bool) {
	visible, isHidden := strings.CutPrefix(name, ".")
	if isHidden {
		suffix = filepath.Ext(visible)
		visible = strings.TrimSuffix(visible, suffix)
		if !slices.Contains([]string{partialSuffix, replacedSuffix, removingSuffix}, suffix) {
			return 0, "", false
		}
	}
	digits, ok := strings.CutPrefix(visible, namePrefix)
	if !ok || len(digits) < 8 {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), suffix, err == nil
}
