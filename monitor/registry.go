package monitor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spillway/eventlog"
	"spillway/internal/vfs"
)

// entry says where the folder of a run is. Each run of this computer has a file with one in
// the user's cache folder, so that views find it.
type entry struct {
	Dir     string    `json:"dir"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// maxEntries is how many runs are remembered.
const maxEntries = 500

// listing is a run's entry.
type listing struct{ path, dir string }

// end says that the run's process has ended.
func (l listing) end() { writeEntry(l.path, entry{Dir: l.dir, Started: time.Now()}) }

// register lists a run. That it cannot be listed stops nothing.
func register(cache, dir string) listing {
	abs, err := filepath.Abs(dir)
	if cache == "" || err != nil {
		return listing{}
	}
	name := sha256.Sum256([]byte(abs))
	l := listing{filepath.Join(cache, "runs", hex.EncodeToString(name[:8])+".json"), abs}
	writeEntry(l.path, entry{abs, os.Getpid(), time.Now()})
	prune(filepath.Dir(l.path))
	return l
}

// mostFolders is how many folders of Folder there are: the oldest of more are removed.
const mostFolders = 32

// Folder makes a folder in the cache for the event log of a run that has no folder of its own, and
// removes those of runs long ago.
func Folder(cache, name string) (string, error) {
	all := filepath.Join(cache, "logs")
	dir := filepath.Join(all, fmt.Sprintf("%s-%s-%d", name, time.Now().Format("20060102-150405"), os.Getpid()))
	if err := vfs.MkdirAll(vfs.OS, dir); err != nil {
		return "", fmt.Errorf("making the folder of the event log: %w", err)
	}
	type old struct {
		path    string
		changed time.Time
	}
	var list []old
	found, _ := filepath.Glob(filepath.Join(all, "*", eventlog.FileName)) // the pattern is sound
	for _, path := range found {
		if info, err := os.Stat(path); err == nil {
			list = append(list, old{filepath.Dir(path), info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b old) int { return b.changed.Compare(a.changed) })
	for _, o := range list[min(mostFolders, len(list)):] {
		if Look(o.path).State != Running {
			os.RemoveAll(o.path) // one that stays is tried again
		}
	}
	return dir, nil
}

func writeEntry(path string, e entry) {
	if path == "" {
		return
	}
	text, err := json.Marshal(e)
	if err == nil && vfs.MkdirAll(vfs.OS, filepath.Dir(path)) == nil {
		_ = vfs.ReplaceBytes(vfs.OS, path, text) // views miss the run, nothing else
	}
}

// prune removes the entries of runs whose folders are gone, and the oldest of too many.
func prune(dir string) {
	list := entries(dir)
	for i, e := range list {
		if _, err := os.Stat(filepath.Join(e.Dir, eventlog.FileName)); i >= maxEntries || err != nil && e.PID == 0 {
			os.Remove(e.path)
		}
	}
}

type listed struct {
	entry
	path string
}

// entries are the runs that are listed, newest first.
func entries(dir string) (list []listed) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is sound
	for _, path := range files {
		text, err := vfs.ReadFile(vfs.OS, path, 64<<10)
		var e entry
		if err == nil && json.Unmarshal(text, &e) == nil && e.Dir != "" {
			list = append(list, listed{e, path})
		}
	}
	slices.SortFunc(list, func(a, b listed) int { return b.Started.Compare(a.Started) })
	return list
}

// State of a run, as far as its log and its process tell.
type State string

// The states.
const (
	Running     State = "running"
	Done        State = "done"
	Interrupted State = "interrupted"
	Failed      State = "failed"
	Killed      State = "killed"  // its process is gone and did not say how it ended
	Waiting     State = "waiting" // its folder has no log yet
)

// RunInfo is a run of this computer in a line.
type RunInfo struct {
	Dir   string `json:"dir"`
	State State  `json:"state"`
	eventlog.Summary
	Works *Works `json:"works,omitempty"` // of a run that goes on, where somebody follows it
}

// Runs lists the runs of this computer, newest first, behind those in more folders. Runs whose
// logs cannot be read have an error in their line.
func Runs(cache string, more ...string) []RunInfo {
	list := []RunInfo{}
	for _, dir := range Dirs(cache, more...) {
		list = append(list, Look(dir))
	}
	return list
}

// Dirs are the folders of Runs.
func Dirs(cache string, more ...string) (dirs []string) {
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range more {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		if filepath.Base(dir) == eventlog.FileName {
			dir = filepath.Dir(dir)
		}
		add(dir)
	}
	if cache == "" {
		return dirs
	}
	for _, e := range entries(filepath.Join(cache, "runs")) {
		if _, err := os.Stat(filepath.Join(e.Dir, eventlog.FileName)); err == nil {
			add(e.Dir)
		}
	}
	return dirs
}

// Look reads the line of one run.
func Look(dir string) RunInfo {
	s, err := eventlog.Summarize(eventlog.PathOf(dir))
	if errors.Is(err, fs.ErrNotExist) {
		s.Error = "there is no event log yet"
		return RunInfo{Dir: dir, State: Waiting, Summary: s}
	}
	if err != nil {
		s.Error = err.Error()
	}
	return RunInfo{Dir: dir, State: StateOf(s), Summary: s}
}

// StateOf tells a run that goes on from one that was killed: by its process, and where that
// is another computer's by when the log was last written.
func StateOf(s eventlog.Summary) State {
	if s.End != nil {
		return State(s.End.How)
	}
	const silent = time.Minute
	here, _ := os.Hostname()
	if s.Start.Host != here || s.Start.PID == 0 {
		if time.Since(s.Changed) < silent {
			return Running
		}
		return Killed
	}
	if alive(s.Start.PID) {
		return Running
	}
	return Killed
}
