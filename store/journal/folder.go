package journal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spillway/internal/vfs"
	"spillway/store"
)

const (
	planName       = "disk-plan.json"
	compressedName = "compressed"
	evaluationName = ".evaluation"

	maxPlanBytes = 1 << 30
)

// CompressedDir is the folder of the journal once a policy has compressed the states.
func CompressedDir(dir string) string { return filepath.Join(dir, compressedName) }

// EvaluationDir is the folder for the weights of an evaluation next to the run.
func EvaluationDir(dir string) string { return filepath.Join(dir, evaluationName) }

// OpenDisk opens the folder of a run as a disk, and removes what a killed evaluation has
// left there.
func OpenDisk(dir string, limit int64, regions []store.Region) (*store.Disk, error) {
	disk, err := store.Open(store.Options{Dir: dir, Limit: limit, Regions: regions})
	if err != nil {
		return nil, err
	}
	if err := vfs.RemoveAll(vfs.OS, EvaluationDir(dir)); err != nil { // the open disk keeps other runs out
		return nil, errors.Join(fmt.Errorf("removing what an earlier run left at %s: %w", dir, err), disk.Close())
	}
	return disk, nil
}

// CloseDisk closes a disk, and removes the plan of a state that is not there and the
// folder of compressed states where it is empty.
func CloseDisk(disk *store.Disk, dir string) (err error) {
	if _, none := store.LastCommit(dir); errors.Is(none, store.ErrNoCommit) {
		err = vfs.RemoveAll(vfs.OS, filepath.Join(dir, planName))
	}
	err = errors.Join(err, disk.Close())
	if filepath.Base(dir) != compressedName {
		return err
	}
	if names, listing := vfs.OS.List(dir); listing == nil && len(names) == 0 {
		err = errors.Join(err, vfs.OS.Remove(dir))
	}
	return err
}

// SavePlan writes the plan that the files are laid out for next to them. Whoever goes on
// needs it: the memory that is free another time may differ, and so may a new plan.
func SavePlan(dir string, write func(io.Writer) error) error {
	if err := vfs.Replace(vfs.OS, filepath.Join(dir, planName), write); err != nil {
		return fmt.Errorf("saving the plan: %w", err)
	}
	return nil
}

// ReadPlan reads the plan of the state in a folder, as it was written.
func ReadPlan(dir string) ([]byte, error) {
	return vfs.ReadFile(vfs.OS, filepath.Join(dir, planName), maxPlanBytes)
}
