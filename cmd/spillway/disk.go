package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/rig"
	"spillway/store"
	"spillway/units"
)

// diskFlag adds the folder that bytes may rest in.
func diskFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "disk", "", "let bytes rest in the folder `DIR` when device and host memory are full (default: no disk)")
}

// diskOptions describe this computer with the disk of a folder, "" for none. The folder
// need not exist yet.
func diskOptions(dir string) rig.Options {
	if dir == "" {
		return rig.Options{}
	}
	for there, err := vfs.Exists(vfs.OS, dir); !there && err == nil && dir != filepath.Dir(dir); there, err = vfs.Exists(vfs.OS, dir) {
		dir = filepath.Dir(dir)
	}
	return rig.Options{Disk: dir}
}

// limitHost lowers what may be used of the host to a size people gave, "" for no limit.
func limitHost(m *machine.Machine, size string) error {
	if size == "" {
		return nil
	}
	limit, err := units.ParseBytes(size)
	if err != nil {
		return usageError{err}
	}
	m.Host.Usable = min(m.Host.Usable, limit)
	return nil
}

// heldOnDisk says whether a folder holds a training, and its iteration.
func heldOnDisk(dir string) (iteration int64, held bool, err error) {
	if dir == "" {
		return 0, false, nil
	}
	iteration, err = store.LastCommit(dir)
	if errors.Is(err, store.ErrNoCommit) {
		return 0, false, nil
	}
	return iteration, err == nil, err
}

// assumedDisk is what is taken for granted of the disk a plan uses; "" for nothing.
func assumedDisk(m machine.Machine) string {
	if m.Disk.Sources["read"] != machine.Assumed {
		return ""
	}
	return fmt.Sprintf("disk reads at %v, writes at %v", m.Disk.Read, m.Disk.Write)
}
