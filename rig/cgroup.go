package rig

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"spillway/units"
)

// hierarchy is a version of control groups: the folders of its groups and the names of its
// files. Version 2 has two limits: above "high" the kernel slows the group down, above
// "max" it kills; we stay below both.
type hierarchy struct {
	folders  []string // under the root of control groups; the first that exists counts
	limits   []string
	usage    string
	inactive string // the key in memory.stat of file pages that the kernel frees first
}

var (
	version1 = hierarchy{[]string{"memory"}, []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"}
	version2 = hierarchy{[]string{"unified", "."}, []string{"memory.max", "memory.high"}, "memory.current", "inactive_file"}
)

// unlimited is at most what version 1 writes for no limit.
const unlimited = 1 << 62

// cgroupMemory is the tightest memory limit on this process, zero for none, and how much is
// left under the limits of its group and all groups above; unlimited without a limit.
func (s System) cgroupMemory() (limit, left units.Bytes, err error) {
	text, err := os.ReadFile(filepath.Join(s.Proc, "self", "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, unlimited, nil // a kernel without control groups
	}
	if err != nil {
		return 0, 0, err
	}
	left = unlimited
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		var h hierarchy
		switch {
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			h = version1
		case id == "0" && controllers == "":
			h = version2
		default:
			continue
		}
		l, r, err := h.tightest(s.Cgroup, group)
		if err != nil {
			return 0, 0, err
		}
		limit, left = tighter(limit, l), min(left, r)
	}
	return limit, left, nil
}

// tighter is the smaller of two limits, where zero is none.
func tighter(a, b units.Bytes) units.Bytes {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// tightest walks from the group up to the root. A missing group is skipped: inside a
// container the path may be that of the outside.
func (h hierarchy) tightest(root, group string) (limit, left units.Bytes, err error) {
	base := root
	for _, f := range slices.Backward(h.folders) {
		if st, err := os.Stat(filepath.Join(root, f)); err == nil && st.IsDir() {
			base = filepath.Join(root, f)
		}
	}
	left = unlimited
	for g := path.Clean("/" + group); ; g = path.Dir(g) {
		l, r, err := h.read(filepath.Join(base, g))
		if err != nil {
			return 0, 0, err
		}
		limit, left = tighter(limit, l), min(left, r)
		if g == "/" {
			return limit, left, nil
		}
	}
}

// read reads the limit of one group, zero for none, and what is left under it: memory that
// is not used, or used for file pages that the kernel frees at once.
func (h hierarchy) read(dir string) (limit, left units.Bytes, err error) {
	least := int64(unlimited)
	for _, name := range h.limits {
		n, ok, err := readNumber(filepath.Join(dir, name))
		if err != nil {
			return 0, 0, err
		}
		if ok {
			least = min(least, n)
		}
	}
	if least >= unlimited {
		return 0, unlimited, nil
	}
	used, _, err := readNumber(filepath.Join(dir, h.usage))
	if err != nil {
		return 0, 0, err
	}
	stat, _ := readCounts(filepath.Join(dir, "memory.stat")) // without it all that is used counts
	used -= min(used, max(stat[h.inactive], 0))
	return units.Bytes(least), units.Bytes(max(least-used, 0)), nil
}
