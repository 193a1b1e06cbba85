package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// Checkpoint is an open, verified checkpoint: its tensors are read in place.
type Checkpoint struct {
	Path      string
	Iteration int64
	Folder    *hf.Folder        // the model, or nil
	Adapter   *hf.AdapterFolder // the adapter, or nil
	State     tensorfile.Source // the optimizer state
	Trainer   json.RawMessage   // Snapshot.Trainer as JSON

	// Skipped says what is wrong with each newer checkpoint, if Latest returned an older
	// one. Callers show it to the user. Damaged are their paths.
	Skipped []error
	Damaged []string
}

// Latest opens the newest checkpoint that is complete and undamaged. If there is none,
// the error is ErrNone.
func (d Dir) Latest() (*Checkpoint, error) {
	found, err := d.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var skipped []error
	var damaged []string
	for _, e := range found {
		c, err := OpenOn(d.fs(), e.Path)
		if err == nil {
			c.Skipped, c.Damaged = skipped, damaged
			return c, nil
		}
		skipped, damaged = append(skipped, err), append(damaged, e.Path)
	}
	if len(skipped) > 0 {
		return nil, fmt.Errorf("all %d checkpoints in %s are damaged: %w", len(skipped), d.Path, errors.Join(skipped...))
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, d.Path)
}

// Newest returns the newest checkpoint of a run's folder, or after an early stop the best.
// For any other folder, such as a checkpoint or a model, it returns the folder itself.
func Newest(dir string) string {
	path, _ := Choose(dir)
	return path
}

// Is says whether a folder is a checkpoint of a run.
func Is(dir string) bool {
	there, err := vfs.Exists(vfs.OS, filepath.Join(dir, ManifestName))
	return err == nil && there
}

// Choose is Newest with a notice, where it is not the newest.
func Choose(dir string) (path, notice string) {
	for _, name := range []string{hf.ConfigName, hf.AdapterConfigName} {
		if there, err := vfs.Exists(vfs.OS, filepath.Join(dir, name)); err == nil && there {
			return dir, ""
		}
	}
	found, err := Dir{Path: dir}.List()
	if err != nil || len(found) == 0 {
		return dir, ""
	}
	newest := found[0]
	for _, e := range found {
		if e.Err == nil && newest.Best > 0 && e.Iteration == newest.Best {
			return e.Path, fmt.Sprintf("%s stopped early: taking its best checkpoint, of step %d, instead of the newest, of step %d", dir, e.Iteration, newest.Iteration)
		}
	}
	return newest.Path, ""
}

// Open opens a checkpoint, after reading all of it once to verify it. The caller closes
// it.
func Open(path string) (*Checkpoint, error) { return OpenOn(vfs.OS, path) }

// OpenOn is Open on a given file system.
func OpenOn(disk vfs.FS, path string) (*Checkpoint, error) {
	if err := vfs.CheckFinished(path); err != nil {
		return nil, err
	}
	m, err := readManifest(disk, path)
	if err != nil {
		return nil, err
	}
	if err := m.verify(disk, path); err != nil {
		return nil, err
	}
	c := &Checkpoint{Path: path, Iteration: m.Iteration}
	if err := c.open(disk); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) open(disk vfs.FS) (err error) {
	if c.Trainer, err = vfs.ReadFile(disk, filepath.Join(c.Path, TrainerName), maxJSON+1); err != nil {
		return err
	}
	adapter, err := vfs.Exists(disk, filepath.Join(c.Path, hf.AdapterConfigName))
	switch {
	case err != nil:
	case adapter:
		c.Adapter, err = hf.OpenAdapterOn(disk, c.Path)
	default:
		c.Folder, err = hf.OpenOn(disk, c.Path)
	}
	if err != nil {
		return err
	}
	c.State, err = tensorfile.Open(disk, filepath.Join(c.Path, StateName))
	return err
}

// Tensor finds a weight by the name of its param.
func (c *Checkpoint) Tensor(name string) (tensorfile.Tensor, bool) {
	if c.Adapter != nil {
		return c.Adapter.Tensor(name)
	}
	return c.Folder.Tensor(name)
}

// Close ends all use of the checkpoint's tensors.
func (c *Checkpoint) Close() error {
	var errs []error
	if c.Folder != nil {
		errs = append(errs, c.Folder.Close())
	}
	if c.Adapter != nil {
		errs = append(errs, c.Adapter.Close())
	}
	if c.State != nil {
		errs = append(errs, c.State.Close())
	}
	return errors.Join(errs...)
}
