package monitor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/eventlog"
	"spillway/internal/nvml"
	"spillway/machine"
	"spillway/trace"
)

// Of a run that goes on, the share of the newest timed step in which each lane worked is shown next to
// the forecast, and tiers next to what the machine has, also while the log grows. Nothing of a run that
// has ended is held open.
func TestLanesOfARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	compute, in := trace.Lane{Device: "gpu0", Queue: "compute"}, trace.Lane{Device: "gpu0", Queue: "in"}
	step := func(computes, copies int64) []trace.Event {
		return []trace.Event{{Verb: trace.Move, Lane: in, Start: 0, End: copies}, {Verb: trace.Run, Lane: compute, Start: 100 - computes, End: 100}, {Verb: trace.Free, Lane: compute, Start: 100, End: 100}}
	}
	log.Start(eventlog.Start{Time: time.Now(), Run: "run", Host: host, PID: os.Getpid()})
	log.Machine(machine.Machine{Devices: []machine.Device{{Kind: machine.GPU, Memory: 8 << 30}, {Kind: machine.CPU, Memory: 64 << 30}}, Host: machine.Host{Memory: 64 << 30}})
	log.Trace(eventlog.Trace{Forecast: true, Events: step(90, 40)})
	it := eventlog.Iteration{Step: 1, Loss: 2, MeasuredBytes: 2 << 30, PredictedBytes: 2 << 30, Tiers: eventlog.Tiers{Device: 2 << 30, Pinned: 16 << 30}, UnixNano: time.Now().UnixNano()}
	log.Iteration(&it)
	w := &Watcher{proc: "/proc", dirs: []string{dir}}
	shows := func(want ...string) {
		t.Helper()
		var text string
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			at := w.Look()
			lines := (&Screen{}).Draw(at, 100, 40)
			text = strings.Join(lines, "\n")
			missing := false
			for _, s := range want {
				missing = missing || !strings.Contains(text, s)
			}
			if !missing {
				return
			}
		}
		t.Fatalf("no %q in\n%s", want, text)
	}
	shows("forecast gpu0 compute", "90%", "gpu0 in", "40%", "device ██│░░░░░ 2.00 GiB", "pinned ██│░░░░░ 16.0 GiB")
	log.Trace(eventlog.Trace{Step: 3, Events: step(70, 60)})
	shows("lanes    gpu0 compute ██████░│ 70%  gpu0 in ███│█░░░ 60%")
	if works := w.Look().Runs[0].Works; works.Step != 3 || works.Room.Host != 64<<30 || len(works.Lanes) != 2 {
		t.Errorf("%+v", works)
	}
	log.End(eventlog.End{Time: time.Now(), How: eventlog.Done})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if at := w.Look(); at.Runs[0].Works != nil || len(w.followed) != 0 {
		t.Errorf("a run that has ended is followed: %+v", at.Runs[0].Works)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Rates of a link are shown as a share of what copies reached when it was measured.
func TestLinkShares(t *testing.T) {
	g := GPU{GPU: nvml.GPU{Name: "H200", Received: 11e9, Sent: 55e9, Busy: 50}, LinkIn: 55e9, LinkOut: 55e9, Named: []Process{}}
	at := Snapshot{GPUs: []GPU{g}, Runs: []RunInfo{}}
	view := &Screen{}
	view.Add(at)
	text := strings.Join(view.Draw(at, 80, 24), "\n")
	for _, want := range []string{"20% of 55.0 GB/s", "100% of 55.0 GB/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if line := at.Lines()[1]; !strings.Contains(line, "in 11.0 GB/s (20%) out 55.0 GB/s (100%)") {
		t.Error(line)
	}
	row := at.Rows()[1]
	if len(row) != len(Columns) || row[len(row)-2] != "55000000000" {
		t.Errorf("%q", row)
	}
	at.GPUs[0].LinkIn, at.GPUs[0].LinkOut = 0, 0
	if line, row := at.Lines()[1], at.Rows()[1]; strings.Contains(line, "B/s (") || row[len(row)-1] != "" {
		t.Errorf("a share of nothing: %s, %q", line, row)
	}
}
