package monitor

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"spillway/internal/nvml"
	"spillway/machine"
	"spillway/rig"
)

// Snapshot is the state of this computer at a moment.
type Snapshot struct {
	Time time.Time `json:"time"`
	Host Host      `json:"host"`
	GPUs []GPU     `json:"gpus"`
	Runs []RunInfo `json:"runs"`
	// Notes say what could not be looked at, and why.
	Notes []string `json:"notes,omitempty"`
}

// GPU is the state of a GPU, with the names of its processes. What the driver does not report
// is -1.
type GPU struct {
	Index int `json:"index"`
	nvml.GPU
	// LinkIn and LinkOut are what copies reached when the link was measured, in bytes per second; 0
	// where it was not: train, plan and devices --calibrate measure it.
	LinkIn  int64     `json:"link_in_measured_rate,omitempty"`
	LinkOut int64     `json:"link_out_measured_rate,omitempty"`
	Named   []Process `json:"named_processes"`
}

// Process holds memory of a GPU.
type Process struct {
	PID   int    `json:"pid"`
	Name  string `json:"name"`  // "" where the system does not say
	Bytes int64  `json:"bytes"` // -1 where the driver does not say
}

// gpuSource is where the state of GPUs comes from.
type gpuSource interface {
	All() ([]nvml.GPU, error)
	Close() error
}

// Watcher looks at this computer again and again. It is used by one goroutine.
type Watcher struct {
	cache string
	dirs  []string
	proc  string
	gpus  gpuSource // nil where there is no driver
	note  string    // why
	last  Host

	followed map[string]*follower // runs that go on, by their folders
	links    map[string]measuredLink
}

// measuredLink is what is known of a GPU's link, and when it was looked for.
type measuredLink struct {
	link   machine.Link
	looked time.Time
}

// linksEvery is how often a link that was not measured is looked for again.
const linksEvery = 5 * time.Second

// link is what copies of a GPU reached when they were measured.
func (w *Watcher) link(g nvml.GPU) machine.Link {
	if known, has := w.links[g.Address]; has && (known.link.In > 0 || time.Since(known.looked) < linksEvery) {
		return known.link
	}
	if w.links == nil {
		w.links = map[string]measuredLink{}
	}
	link, _ := rig.MeasuredLink(w.cache, g.Name, g.Address) // nothing where there is none
	w.links[g.Address] = measuredLink{link, time.Now()}
	return link
}

// Watch begins to watch the computer, with the runs that the cache folder lists and those in
// more folders. The caller closes it.
func Watch(cache string, dirs ...string) *Watcher {
	w := &Watcher{cache: cache, dirs: dirs, proc: "/proc"}
	if library, err := nvml.Open(); err != nil {
		w.note = "no GPU is shown: no NVIDIA driver found"
	} else {
		w.gpus = library
	}
	w.last, _ = readHost(w.proc) // the first look has nothing to compare with
	return w
}

// Close ends it.
func (w *Watcher) Close() error {
	w.leave(nil)
	if w.gpus == nil {
		return nil
	}
	return w.gpus.Close()
}

// recent is how long runs that have ended are shown.
const recent = 10 * time.Minute

// Look is the state now, with the runs.
func (w *Watcher) Look() Snapshot {
	s := w.Computer()
	for _, r := range Runs(w.cache, w.dirs...) {
		if r.State == Running || time.Since(r.Changed) < recent {
			if r.State == Running {
				w.works(&r)
			}
			s.Runs = append(s.Runs, r)
		}
	}
	w.leave(s.Runs)
	return s
}

// Computer is the state of host and GPUs now, without the runs.
func (w *Watcher) Computer() Snapshot {
	s := Snapshot{Time: time.Now(), GPUs: []GPU{}, Runs: []RunInfo{}}
	h, err := readHost(w.proc)
	if err != nil {
		s.Notes = append(s.Notes, "the memory of the host is not known: "+err.Error())
		h.Cores = runtime.NumCPU()
	}
	h.Name, _ = os.Hostname()
	if work, idle := h.work-w.last.work, h.idle-w.last.idle; work+idle > 0 && h.work >= w.last.work {
		h.Busy = float64(work) / float64(work+idle)
	}
	s.Host, w.last = h, h
	if w.note != "" {
		s.Notes = append(s.Notes, w.note)
	}
	if w.gpus != nil {
		list, err := w.gpus.All()
		if err != nil {
			s.Notes = append(s.Notes, "GPUs: "+err.Error())
		}
		for i, g := range list {
			link := w.link(g)
			gpu := GPU{Index: i, GPU: g, LinkIn: int64(link.In), LinkOut: int64(link.Out), Named: []Process{}}
			for _, p := range g.Processes {
				gpu.Named = append(gpu.Named, Process{p.PID, processName(w.proc, p.PID), p.Bytes})
			}
			s.GPUs = append(s.GPUs, gpu)
		}
	}
	return s
}

// processName is a process's program with its first argument, as people call it: "python
// train.py", "spillway train".
func processName(proc string, pid int) string {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if text, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(text) > 0 {
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		name := filepath.Base(args[0])
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
			name += " " + filepath.Base(args[1])
		}
		return printable(name)
	}
	text, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return ""
	}
	return printable(strings.TrimSpace(string(text)))
}

// printable leaves out what would change a terminal: names are chosen by other programs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}
