package dashboard

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"spillway/eventlog"
	"spillway/monitor"
	"spillway/view"
)

// RunLine is a run of the list.
type RunLine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	monitor.RunInfo
}

// roll is the list of all runs. It reads again only what was written since: a thousand runs
// that have ended cost a thousand looks at the size of a file.
type roll struct {
	cache string
	more  []string

	mu    sync.Mutex
	dirs  []string
	known time.Time // when dirs were looked for
	lines map[string]*rollLine
	// version counts changes; whole is the version at which the set of runs last changed.
	version, whole int64
}

// rollLine is a run with what says whether it was written since.
type rollLine struct {
	RunLine
	size     int64
	modified time.Time
	version  int64 // of the roll, when the run last changed
}

// The list of folders is looked for again when the registry changed, and at least so often.
const dirsEvery = 10 * time.Second

// look brings the list up to date.
func (r *roll) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findDirs()
	next := r.version + 1
	lines, changed := make(map[string]*rollLine, len(r.dirs)), false
	for _, dir := range r.dirs {
		line := r.lines[dir]
		size, modified := stamp(dir)
		if line == nil || line.size != size || !line.modified.Equal(modified) || line.State == monitor.Running && line.End == nil && !sameState(line) {
			line = &rollLine{RunLine{idOf(dir), view.NameOf(dir), monitor.Look(dir)}, size, modified, next}
			changed = true
		}
		lines[dir] = line
	}
	for dir := range lines {
		if r.lines[dir] == nil {
			r.whole, changed = next, true
		}
	}
	if len(lines) != len(r.lines) {
		r.whole, changed = next, true
	}
	r.lines = lines
	if changed {
		r.version = next
	}
}

// sameState says whether a run that went on still does: its process may be gone though its log
// is as it was.
func sameState(l *rollLine) bool { return monitor.StateOf(l.Summary) == l.State }

// stamp says how an event log is: another after it was written.
func stamp(dir string) (int64, time.Time) {
	info, err := os.Stat(eventlog.PathOf(dir))
	if err != nil {
		return -1, time.Time{}
	}
	return info.Size(), info.ModTime()
}

// findDirs looks for the folders of runs, if the registry may have others than before.
func (r *roll) findDirs() {
	if time.Since(r.known) < dirsEvery {
		info, err := os.Stat(filepath.Join(r.cache, "runs"))
		if r.cache == "" || err != nil || info.ModTime().Add(time.Second).Before(r.known) {
			return
		}
	}
	r.known = time.Now()
	r.dirs = monitor.Dirs(r.cache, r.more...)
}

// since are the runs that changed after a version, all of them if there are others than then,
// and the version they are of.
func (r *roll) since(version int64) (lines []RunLine, whole bool, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	whole = version < r.whole || version == 0
	lines = []RunLine{}
	for _, dir := range r.dirs {
		if l := r.lines[dir]; l != nil && (whole || l.version > version) {
			lines = append(lines, l.RunLine)
		}
	}
	return lines, whole, r.version
}

// all are all runs as they are now.
func (r *roll) all() []RunLine {
	r.look()
	lines, _, _ := r.since(0)
	return lines
}

// dir is the folder of a run; "" where there is no such.
func (r *roll) dir(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findDirs()
	for _, dir := range r.dirs {
		if idOf(dir) == id {
			return dir
		}
	}
	return ""
}
