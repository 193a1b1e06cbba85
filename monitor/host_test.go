package monitor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"spillway/eventlog"
)

// The files of a Linux kernel are read as it writes them.
func TestHost(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"meminfo":         "MemTotal:       24000000 kB\nMemFree:  100 kB\nMemAvailable:   12000000 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\n",
		"pressure/memory": "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
		"stat":            "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nintr 1 2 3\n",
	} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := readHost(proc)
	if err != nil || h.Total != 24000000<<10 || h.Available != 12000000<<10 || h.Swap != 600<<10 || h.Pressure != 0.125 || h.Cores != 2 || h.work != 150 || h.idle != 850 {
		t.Errorf("%+v, %v", h, err)
	}
}

// Runs are found through the cache folder, with the state that log and process tell.
func TestRuns(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	host, _ := os.Hostname()
	const gone = 1 << 30 // no process has this number
	for name, pid := range map[string]int{"here": os.Getpid(), "gone": gone} {
		run := filepath.Join(dir, name)
		if err := os.Mkdir(run, 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := eventlog.Open(filepath.Join(run, eventlog.FileName), eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.Start(eventlog.Start{Time: time.Now(), PID: pid, Host: host, Run: name})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		register(cache, run)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.Mkdir(bad, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, eventlog.FileName), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	states := map[string]State{}
	for _, r := range Runs(cache, bad) {
		states[filepath.Base(r.Dir)] = r.State
		if (r.Error != "") != (filepath.Base(r.Dir) == "bad") {
			t.Errorf("%s: %q", r.Dir, r.Error)
		}
	}
	if len(states) != 3 || states["here"] != Running || states["gone"] != Killed {
		t.Errorf("%v", states)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if list := Runs(cache); len(list) != 1 {
		t.Errorf("%d runs are left", len(list))
	}
}
