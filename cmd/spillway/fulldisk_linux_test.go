package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Copies that a full disk has no place for are refused with what is missing and what is free, and nothing is
// left of them.
func TestGenerateOnAFullDisk(t *testing.T) {
	in := inputs{wide: wideModel(t)}
	dir := t.TempDir()
	args := slices.Concat([]string{os.Args[0]}, in.writers()["generate disk"].args)
	args[slices.Index(args, "disk")] = filepath.Join(dir, "disk")
	const script = `mount -t tmpfs -o size=$1 none "$2" || { echo no mount; exit 0; }
shift; d=$1; shift
"$@"; echo "ended with $?, left $(find "$d" -type f | wc -l)"`
	for _, size := range []string{"64k", "1m"} {
		cmd := program(t)
		cmd.Path, cmd.Args = "/bin/sh", slices.Concat([]string{"sh", "-c", script, "sh", size, dir}, args)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}} // where it may mount
		text, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(text), "no mount") {
			t.Skipf("a small disk cannot be made here: %v, %s", err, text)
		}
		for _, says := range []string{"are free at " + dir, "free space there or choose another disk", "ended with 1, left 0"} {
			if !strings.Contains(string(text), says) {
				t.Errorf("a disk of %s: %s, want %q", size, text, says)
			}
		}
	}
}
