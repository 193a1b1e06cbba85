package main

import (
	"path/filepath"

	"spillway/internal/term"
	"spillway/plan"
	"spillway/rig"
)

// deviceHelp explains --device where devices are opened.
const deviceHelp = "run on `NAME`: cpu, cuda:0, a share of a GPU such as cuda:0/2, or several that are alike, separated by commas; tf32 at the end lets GPUs round f32 operands of matmuls and attention to 10 bits of fraction (default: the first GPU that opens, else the CPU)"

// open opens devices by the names of --device and describes this computer with them. What
// is not in the cache is measured, with a line that says so. The caller closes the rig.
func (sh shell) open(names string, o rig.Options) (*rig.Rig, error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	o.Cache, o.LibraryPaths, o.Drivers, o.Measure = sh.cache, sh.libraryPaths, append([]string{}, sh.drivers...), true
	if o.Report == nil {
		o.Report = func(what string) { line.Show(func() string { return "measuring this computer, once: " + what }) }
	}
	return rig.Open(names, o)
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

// driverPredicted is what the GPUs' driver is expected to count when the plan, whose kernels
// were asked for, has its arenas; 0 where there are no GPUs. Bytes.
func driverPredicted(r *rig.Rig, p *plan.Plan) int64 {
	var pinned int64
	onDevice := make([]int64, len(r.Devices))
	for _, a := range p.Arenas {
		switch {
		case a.Tier == plan.Pinned:
			pinned += a.Bytes
		case a.Tier == plan.OnDevice && a.Device < len(onDevice):
			onDevice[a.Device] += a.Bytes
		}
	}
	return r.Footprint(onDevice, pinned)
}
