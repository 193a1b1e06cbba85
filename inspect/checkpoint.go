package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"spillway/checkpoint"
	"spillway/internal/vfs"
	"spillway/optim"
	"spillway/tensorfile"
)

// Checkpoint is the state that a checkpoint adds to a model.
type Checkpoint struct {
	Iteration int64           `json:"iteration"`
	Optimizer string          `json:"optimizer"`
	Tensors   int             `json:"state_tensors"`
	Bytes     int64           `json:"state_bytes"`
	Verified  bool            `json:"verified"` // every byte was compared with its checksum
	Trainer   json.RawMessage `json:"trainer"`  // everything else it keeps
}

// inspectCheckpoint looks for the state of a run.
func (r *Report) inspectCheckpoint(verify bool) {
	_, err := os.Stat(filepath.Join(r.Path, checkpoint.ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		if verify {
			r.problem("there is no %s: only checkpoints have checksums to verify", checkpoint.ManifestName)
		}
		return
	}
	if r.Checkpoint, err = readState(r.Path); err != nil {
		r.problem("%v", err)
		return
	}
	if verify {
		c, err := checkpoint.Open(r.Path)
		if err != nil {
			r.problem("%v", err)
			return
		}
		c.Close() // opened for reading
		r.Checkpoint.Verified = true
	}
}

// readState reads what is small, and the header of what is not.
func readState(dir string) (*Checkpoint, error) {
	var r Checkpoint
	var err error
	if r.Trainer, err = os.ReadFile(filepath.Join(dir, checkpoint.TrainerName)); err != nil {
		return nil, err
	}
	var known struct {
		Iteration int64        `json:"iteration"`
		Optimizer optim.Config `json:"optimizer"`
	}
	if err := json.Unmarshal(r.Trainer, &known); err != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.TrainerName, err)
	}
	r.Iteration, r.Optimizer = known.Iteration, known.Optimizer.String()
	state, err := tensorfile.Open(vfs.OS, filepath.Join(dir, checkpoint.StateName))
	if err != nil {
		return nil, err
	}
	defer state.Close() // opened for reading
	for _, t := range state.Tensors() {
		r.Tensors++
		r.Bytes += t.Bytes
	}
	return &r, nil
}
