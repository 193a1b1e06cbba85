package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"time"

	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/units"
)

// Claim makes the folder, and keeps other processes from saving to it until it is released.
// It removes what killed saves left, and so finds out whether the folder can be written at all.
func (d Dir) Claim() (release func() error, err error) {
	if err := vfs.MkdirAll(vfs.OS, d.Path); err != nil {
		return nil, fmt.Errorf("making the folder for checkpoints: %w", err)
	}
	unlock, err := vfs.Claim(filepath.Join(d.Path, "checkpoints"))
	var held *vfs.HeldError
	switch {
	case errors.As(err, &held):
		held.Path = d.Path
		return nil, held
	case err != nil:
		return nil, fmt.Errorf("no checkpoint could be saved to %s: %w", d.Path, err)
	}
	if err := d.removeLeftovers(); err != nil {
		return nil, errors.Join(fmt.Errorf("no checkpoint could be saved to %s: removing what an earlier run left: %w", d.Path, err), unlock())
	}
	return func() error {
		err := unlock()
		vfs.OS.Remove(d.Path) // where it is empty still
		return err
	}, nil
}

// CheckSpace refuses a folder without space for a checkpoint of so many bytes. A notice
// says so where there is space for one, but not for all that will be there at once.
func (d Dir) CheckSpace(bytes, checkpoints int64) (notice string, err error) {
	free, err := d.fs().Free(vfs.ExistingParent(d.fs(), d.Path))
	if err != nil {
		return "", err
	}
	found, _ := d.List() // none where there is no folder yet
	switch more := max(checkpoints-int64(len(found)), 1); {
	case free < bytes:
		return "", fmt.Errorf("a checkpoint: %w", &vfs.SpaceError{Dir: d.Path, Needed: bytes, Free: free})
	case free < more*bytes:
		return fmt.Sprintf("%d checkpoints of %v will be in %s at once, %v are free: keep fewer, or free space before they are saved", checkpoints, units.Bytes(bytes), d.Path, units.Bytes(free)), nil
	}
	return "", nil
}

// Save writes a checkpoint and returns its path once it is durable. Then it removes
// older ones beyond Keep. An error together with a path means that the checkpoint is
// safe and only the removal failed; without a path the older ones are untouched.
func (d Dir) Save(s Snapshot) (path string, err error) {
	if s.Iteration < 0 {
		return "", fmt.Errorf("saving a checkpoint of iteration %d, which is negative", s.Iteration)
	}
	path = d.At(s.Iteration)
	if err := d.write(s, path); err != nil {
		return "", fmt.Errorf("saving the checkpoint of iteration %d: %w", s.Iteration, err)
	}
	if err := d.prune(path); err != nil {
		return path, fmt.Errorf("removing older checkpoints than %s: %w", path, err)
	}
	return path, nil
}

func (d Dir) write(s Snapshot, path string) error {
	disk := d.fs()
	if err := vfs.MkdirAll(disk, d.Path); err != nil {
		return err
	}
	if err := d.removeLeftovers(); err != nil {
		return err
	}
	found, err := d.List()
	if err != nil {
		return err
	}
	saved := time.Now().UnixNano()
	for _, e := range found {
		saved = max(saved, e.Saved+1) // just after the newest, if the clock was set back
	}
	needed, err := s.bytes()
	if err != nil {
		return err
	}
	err = vfs.WithSpace(disk, d.Path, needed, func() error {
		return vfs.Publish(disk, path, func(partial string) error {
			if err := s.fill(disk, partial, saved); err != nil {
				return err
			}
			// An older checkpoint of the same iteration is hidden, so that the new one can
			// have its name. Latest still finds it.
			exists, err := vfs.Exists(disk, path)
			if err != nil || !exists {
				return err
			}
			return disk.Rename(path, hidden(path, replacedSuffix))
		})
	})
	if err != nil {
		return errors.Join(err, d.restoreReplaced(path))
	}
	return nil
}

// fill writes all files of a checkpoint, the manifest last.
func (s Snapshot) fill(disk vfs.FS, dir string, saved int64) error {
	sums := checksumFS{disk, dir, map[string]*checksumFile{}}
	if err := s.weights().Fill(sums, dir); err != nil {
		return err
	}
	if err := safetensors.WriteFile(sums, filepath.Join(dir, StateName), s.State); err != nil {
		return err
	}
	trainer, err := json.MarshalIndent(s.Trainer, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", TrainerName, err)
	}
	if len(trainer) > maxJSON {
		return fmt.Errorf("%s would have %d bytes, at most %d are allowed: save large things as tensors", TrainerName, len(trainer), maxJSON)
	}
	if err := vfs.WriteBytes(sums, filepath.Join(dir, TrainerName), append(trainer, '\n')); err != nil {
		return err
	}
	m := manifest{formatVersion, s.Iteration, saved, map[string]checksum{}, s.Best}
	for name, f := range sums.files {
		m.Files[name] = f.sum
	}
	compact, err := json.Marshal(m)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(sealedManifest{compact, crc32.Checksum(compact, castagnoli)}, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteBytes(sums, filepath.Join(dir, ManifestName), append(text, '\n'))
}

// restoreReplaced brings the hidden one back if the new checkpoint did not get its name.
func (d Dir) restoreReplaced(path string) error {
	isHidden, err := vfs.Exists(d.fs(), hidden(path, replacedSuffix))
	if err != nil || !isHidden {
		return err
	}
	taken, err := vfs.Exists(d.fs(), path)
	if err != nil || taken {
		return err
	}
	if err := d.fs().Rename(hidden(path, replacedSuffix), path); err != nil {
		return err
	}
	return d.fs().SyncDir(d.Path)
}

// removeLeftovers removes what killed saves left.
func (d Dir) removeLeftovers() error {
	if d.fs() == vfs.OS {
		if err := vfs.RemoveStaleLocks(d.Path); err != nil {
			return err
		}
	}
	names, err := d.fs().List(d.Path)
	if err != nil {
		return err
	}
	var replaced []string
	for _, n := range names {
		iteration, suffix, _ := parseName(n)
		switch suffix {
		case replacedSuffix:
			replaced = append(replaced, d.At(iteration))
		case partialSuffix:
			err = vfs.RemoveAll(d.fs(), filepath.Join(d.Path, n))
		case removingSuffix:
			err = d.finishRemoving(filepath.Join(d.Path, n))
		}
		if err != nil {
			return err
		}
	}
	for _, path := range replaced {
		if err := d.restoreReplaced(path); err != nil {
			return err
		}
		if err := d.removeReplaced(path); err != nil {
			return err
		}
	}
	return nil
}

// prune removes the checkpoint that the newest replaced, and all but the Keep newest
// checkpoints and AlwaysKeep. Checkpoints with an unreadable manifest, and those that are
// known to be damaged, are left for the user to look at and do not count.
func (d Dir) prune(newest string) error {
	if err := d.removeReplaced(newest); err != nil || d.Keep <= 0 {
		return err
	}
	found, err := d.List()
	if err != nil {
		return err
	}
	readable := slices.DeleteFunc(found, func(e Entry) bool { return e.Err != nil || slices.Contains(d.Damaged, e.Path) })
	for _, e := range readable[min(d.Keep, len(readable)):] {
		if d.AlwaysKeep > 0 && e.Iteration == d.AlwaysKeep {
			continue
		}
		if err := d.remove(e.Path, hidden(e.Path, removingSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// removeReplaced removes the checkpoint that a newer one replaced, if there is one.
func (d Dir) removeReplaced(path string) error {
	replaced := hidden(path, replacedSuffix)
	exists, err := vfs.Exists(d.fs(), replaced)
	if err != nil || !exists {
		return err
	}
	return d.remove(replaced, hidden(path, removingSuffix))
}

// remove renames a checkpoint to removing and then removes its files.
func (d Dir) remove(path, removing string) error {
	if err := d.fs().Rename(path, removing); err != nil {
		return err
	}
	return d.finishRemoving(removing)
}

// finishRemoving removes the files once the new name is durable: otherwise a power failure
// could bring the old name back with half of the files.
func (d Dir) finishRemoving(path string) error {
	if err := d.fs().SyncDir(d.Path); err != nil {
		return err
	}
	return vfs.RemoveAll(d.fs(), path)
}
