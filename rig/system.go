package rig

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spillway/units"
)

// System is where the facts of a computer are read. The zero value is this computer; tests
// point Proc and Cgroup at a tree of files.
type System struct {
	Proc   string // "/proc"
	Cgroup string // "/sys/fs/cgroup"
}

// ProgramOverhead is the memory that a running program takes in addition to the arenas of
// its plan: prepared instructions and kernels, stacks, batches. Usable memory is counted
// without it, so that a plan that takes all of it still runs.
const ProgramOverhead = 10 * units.MiB

// Next to GPUs a program takes more: their libraries, most of which are loaded with the
// first kernels, and the page lists that the driver and the kernel keep of page-locked
// memory.
const (
	gpuProgramOverhead = units.GiB
	pageLockShare      = 64 // one 64th of page-locked memory
)

// lessForGPUs is what arenas may take of free host memory in a program that uses GPUs.
func lessForGPUs(free units.Bytes) units.Bytes {
	free = max(free-gpuProgramOverhead, 0)
	return free - free/pageLockShare
}

// systemFacts are what a computer reports about itself.
type systemFacts struct {
	cpu      string
	features []string
	memory   units.Bytes // installed
	limit    units.Bytes // of the control group, 0 for none
	usable   units.Bytes // free, within the limit, for arenas
	notes    []string
}

// Usable is how much host memory arenas may take now without swapping or being killed, in a
// program without GPUs.
func (s System) Usable() (units.Bytes, error) {
	f, err := s.readFacts()
	if err != nil {
		return 0, fmt.Errorf("asking for the memory that is left: %w", err)
	}
	return f.usable, nil
}

// procFacts reads the files of a Linux kernel.
func (s System) procFacts() (systemFacts, error) {
	var f systemFacts
	if err := f.readMemory(filepath.Join(s.Proc, "meminfo")); err != nil {
		return f, err
	}
	if err := f.readCPU(filepath.Join(s.Proc, "cpuinfo")); err != nil {
		return f, err
	}
	limit, left, err := s.cgroupMemory()
	if err != nil {
		f.notes = append(f.notes, fmt.Sprintf("the control group's memory limit could not be read, so none is taken into account: %v", err))
		limit, left = 0, f.usable
	}
	f.limit, f.usable = limit, max(min(f.usable, left)-ProgramOverhead, 0)
	return f, nil
}

// readMemory reads the installed and the available memory; kernels before 3.14 report only
// what is free.
func (f *systemFacts) readMemory(path string) error {
	kib, err := readCounts(path)
	if err != nil {
		return err
	}
	if f.memory = units.Bytes(kib["MemTotal"]) * units.KiB; f.memory <= 0 {
		return fmt.Errorf("%s has no MemTotal", path)
	}
	free, ok := kib["MemAvailable"]
	if !ok {
		free = kib["MemFree"]
		f.notes = append(f.notes, "the kernel does not report available memory; only what is free is counted")
	}
	f.usable = units.Bytes(free) * units.KiB
	return nil
}

// instructionSets are the names worth reporting, as the kernel spells them.
var instructionSets = []string{
	"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
	"asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
}

// readCPU reads the name and the instruction sets of the first core. ARM kernels give no
// name, only the numbers of maker and part.
func (f *systemFacts) readCPU(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var maker, part string
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && (lines.Text() != "" || f.features == nil) {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			f.cpu = value
		case "CPU implementer":
			maker = value
		case "CPU part":
			part = value
		case "flags", "Features":
			has := strings.Fields(value)
			f.features = slices.DeleteFunc(slices.Clone(instructionSets), func(name string) bool { return !slices.Contains(has, name) })
		}
	}
	if f.cpu == "" && part != "" {
		f.cpu = "arm implementer " + maker + " part " + part
	}
	if f.cpu == "" {
		f.notes = append(f.notes, "the name of the CPU could not be read from "+path)
	}
	return lines.Err()
}

// readCounts reads a file of lines that begin with a name and a number, such as "MemTotal: 64 kB".
func readCounts(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 {
			n, err := strconv.ParseInt(words[1], 10, 53) // room for a unit
			if err == nil {
				counts[strings.TrimSuffix(words[0], ":")] = n
			}
		}
	}
	return counts, nil
}

// readNumber reads a file of one number; ok is false for "max" and for a missing file.
func readNumber(path string) (n int64, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		return 0, false, fmt.Errorf("%s holds %q, not an amount of memory", path, word)
	}
	return n, true, nil
}
