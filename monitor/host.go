package monitor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spillway/eventlog"
	"spillway/internal/vfs"
	"spillway/rig"
)

// memorySample looks at the memory of this process, the host and the disk of a folder.
// What the system does not tell is 0.
func memorySample(dir string) (s eventlog.Sample) {
	if n, err := rig.Resident(); err == nil {
		s.Resident = n
	}
	if h, err := readHost("/proc"); err == nil {
		s.HostAvailable, s.Pressure = h.Available, h.Pressure
	}
	if n, err := vfs.FreeSpace(dir); err == nil {
		s.DiskFree = n
	}
	return s
}

// Host is the state of the computer without its GPUs. Of what the system does not tell,
// figures are 0.
type Host struct {
	Name      string  `json:"name"`
	Cores     int     `json:"cores"`
	Busy      float64 `json:"busy"`            // share of all cores since the last look; 0 at the first
	Total     int64   `json:"total_bytes"`     // of memory
	Available int64   `json:"available_bytes"` // that programs could get
	Swap      int64   `json:"swap_bytes"`      // in use
	Pressure  float64 `json:"pressure"`        // share of the last ten seconds in which something waited for memory

	work, idle uint64 // clock ticks since the start
}

// readHost reads the files of a Linux kernel.
func readHost(proc string) (h Host, err error) {
	text, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return h, err
	}
	kib := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 {
			n, _ := strconv.ParseInt(f[1], 10, 64) // 0 where it does not parse
			kib[strings.TrimSuffix(f[0], ":")] = n
		}
	}
	h.Total, h.Available, h.Swap = kib["MemTotal"]<<10, kib["MemAvailable"]<<10, (kib["SwapTotal"]-kib["SwapFree"])<<10
	if text, err := os.ReadFile(filepath.Join(proc, "pressure", "memory")); err == nil {
		h.Pressure = pressure(string(text))
	}
	if text, err := os.ReadFile(filepath.Join(proc, "stat")); err == nil {
		h.cpu(string(text))
	}
	return h, nil
}

// pressure is avg10 of the line "some avg10=1.25 avg60=...", as a share.
func pressure(text string) float64 {
	for _, f := range strings.Fields(text) {
		if v, ok := strings.CutPrefix(f, "avg10="); ok {
			percent, _ := strconv.ParseFloat(v, 64) // 0 where it does not parse
			return percent / 100
		}
	}
	return 0
}

// cpu reads /proc/stat: the first line has the ticks of all cores, then comes one per core.
func (h *Host) cpu(text string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") {
			break
		}
		if f[0] != "cpu" {
			h.Cores++
			continue
		}
		const idle, waiting = 4, 5
		for i, v := range f[1:min(len(f), 9)] { // guests are part of users
			n, _ := strconv.ParseUint(v, 10, 64) // 0 where it does not parse
			if i+1 == idle || i+1 == waiting {
				h.idle += n
			} else {
				h.work += n
			}
		}
	}
}
