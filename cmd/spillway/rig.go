package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"spillway/device"
	"spillway/internal/term"
	"spillway/rig"
)

// rigOptions have devices opened with the libraries and the cache of this shell. What is not
// in the cache is measured, and the line says so.
func (sh shell) rigOptions(line *term.Line) rig.Options {
	return rig.Options{Cache: sh.cache, LibraryPaths: sh.libraryPaths, Drivers: append([]string{}, sh.drivers...), Measure: !sh.assumes,
		Report: func(what string) { line.Show(func() string { return "measuring this computer, once: " + what }) }}
}

// open opens devices by the names of --device and describes this computer with them; of o
// the shell fills in what rigOptions has. The caller closes the rig.
func (sh shell) open(names string, o rig.Options) (*rig.Rig, error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	usual := sh.rigOptions(line)
	usual.Disk, usual.MeasureDisk, usual.Calibrate = o.Disk, o.MeasureDisk, o.Calibrate
	if o.Report != nil {
		usual.Report = o.Report
	}
	r, err := rig.Open(names, usual)
	if errors.Is(err, device.ErrUnknown) {
		err = usageError{fmt.Errorf("--device %s: %w", names, err)}
	}
	return r, err
}

// libraryPaths are the folders of GPU libraries that an environment names: of
// toolkits, of a Python environment, and of the loader.
func libraryPaths(getenv func(string) string) (paths []string) {
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH"} {
		for _, dir := range filepath.SplitList(getenv(name)) {
			if dir != "" {
				paths = append(paths, dir)
			}
		}
	}
	return paths
}
