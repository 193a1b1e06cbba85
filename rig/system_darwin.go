package rig

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"spillway/units"
)

func (s System) readFacts() (systemFacts, error) {
	if s.Proc != "" {
		return s.procFacts()
	}
	memory, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return systemFacts{}, err
	}
	f := systemFacts{memory: units.Bytes(memory), usable: units.Bytes(memory)}
	f.notes = append(f.notes, "this system does not say what memory is available; all of it is counted")
	if f.cpu, err = unix.Sysctl("machdep.cpu.brand_string"); err != nil {
		f.notes = append(f.notes, "the name of the CPU could not be read: "+err.Error())
	}
	if runtime.GOARCH == "arm64" {
		f.features = []string{"asimd"} // every one has it
	}
	return f, nil
}

// openDirect opens past the page cache.
func openDirect(path string, flag int) (f *os.File, direct bool, err error) {
	if f, err = os.OpenFile(path, flag, 0o600); err != nil {
		return nil, false, err
	}
	if _, err = unix.FcntlInt(f.Fd(), unix.F_NOCACHE, 1); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}
