package rig

import (
	"errors"
	"os"
	"syscall"
)

func (s System) readFacts() (systemFacts, error) {
	if s.Proc == "" {
		s.Proc = "/proc"
	}
	if s.Cgroup == "" {
		s.Cgroup = "/sys/fs/cgroup"
	}
	return s.procFacts()
}

// openDirect opens past the page cache where the file system can.
func openDirect(path string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag|syscall.O_DIRECT, 0o600)
	if err == nil || !errors.Is(err, syscall.EINVAL) {
		return f, err == nil, err
	}
	// A refused O_DIRECT may have left the file behind, made by this very call.
	f, err = os.OpenFile(path, flag&^os.O_EXCL, 0o600)
	return f, false, err
}
