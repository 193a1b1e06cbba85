package monitor

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"spillway/eventlog"
	"spillway/internal/nvml"
)

func snapshot(gpus, runs int) Snapshot {
	s := Snapshot{Time: time.Unix(1e9, 0).UTC(), Host: Host{Name: "box", Cores: 16, Busy: 0.5, Total: 64 << 30, Available: 32 << 30, Pressure: 0.2}, GPUs: []GPU{}, Runs: []RunInfo{}}
	for i := range gpus {
		s.GPUs = append(s.GPUs, GPU{Index: i, GPU: nvml.GPU{Name: "NVIDIA H200", Busy: 90, Memory: 141 << 30, MemoryUsed: 70 << 30, Received: 50e9, Sent: 20e9, Temperature: 60, Power: 500_000, PowerLimit: 700_000, Clock: 1980, ClockMax: 1980, LinkGeneration: 5, LinkWidth: 16},
			Named: []Process{{1234, "python train.py", 60 << 30}, {99, "", -1}}})
	}
	for i := range runs {
		it := eventlog.Iteration{Step: int64(i * 100), MaxSteps: 100_000, Loss: 2.5, TokensPerSecond: 12345, ShareOfRoofline: 0.87, ETA: 98765, Bound: 2, MeasuredBytes: 1 << 34, PredictedBytes: 1 << 34}
		s.Runs = append(s.Runs, RunInfo{Dir: "/somewhere/run-with-a-long-name", State: []State{Running, Failed, Done}[i%3], Summary: eventlog.Summary{Last: &it, Recent: []eventlog.Iteration{it, it, it},
			Alerts: []eventlog.Alert{{Step: 7, Text: "steps took over 1.1 × the forecast; most of the difference is on gpu0 in"}}}})
	}
	s.Runs = append(s.Runs, RunInfo{Dir: "/bad", State: Killed, Summary: eventlog.Summary{Error: "/bad/events.bin is damaged at byte 100"}})
	return s
}

// plain takes colours out.
func plain(line string) string {
	for {
		from := strings.Index(line, "\x1b[")
		if from < 0 {
			return line
		}
		to := from + strings.IndexByte(line[from:], 'm')
		line = line[:from] + line[to+1:]
	}
}

// Whatever there is and however large the terminal, nothing is wider or higher than it.
func TestScreenFits(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {80, 24}, {100, 30}, {120, 40}, {200, 60}} {
		for gpus := range 3 {
			for _, colour := range []bool{false, true} {
				s := &Screen{Colour: colour, Every: time.Second}
				at := snapshot(gpus, 3)
				for range 300 {
					s.Add(at)
				}
				lines := s.Draw(at, size[0], size[1])
				if len(lines) > size[1] {
					t.Errorf("%v: %d lines", size, len(lines))
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(plain(line)); n > size[0] {
						t.Errorf("%v: %d columns: %s", size, n, line)
					}
					if !colour && strings.Contains(line, "\x1b") {
						t.Errorf("%v: colours: %q", size, line)
					}
				}
				text := strings.Join(lines, "\n")
				if size[0] >= 80 && size[1] >= 60 {
					for _, want := range []string{"CPU", "memory", "2.5000", "is damaged"} {
						if !strings.Contains(text, want) {
							t.Errorf("%v: no %q in\n%s", size, want, text)
						}
					}
					if gpus > 0 && !strings.Contains(text, "python train.py") {
						t.Errorf("no process in\n%s", text)
					}
				}
			}
		}
	}
}

// fakeGPUs answers, or does not.
type fakeGPUs struct {
	list []nvml.GPU
	err  error
}

func (f fakeGPUs) All() ([]nvml.GPU, error) { return f.list, f.err }
func (fakeGPUs) Close() error               { return nil }

// A computer is looked at with GPUs, without, and where the driver answers with an error.
func TestWatch(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{"77/cmdline": "/usr/bin/python3\x00/home/x/tr\x1bain.py\x00--a", "meminfo": "MemTotal: 100 kB\nMemAvailable: 40 kB\n", "stat": "cpu 1 1 1 1 1 1 1\n"} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := &Watcher{proc: proc, gpus: fakeGPUs{list: []nvml.GPU{{Name: "H200", Processes: []nvml.Process{{PID: 77, Bytes: 5}, {PID: 78, Bytes: -1}}}}}}
	s := w.Look()
	if len(s.GPUs) != 1 || s.GPUs[0].Named[0].Name != "python3 train.py" || s.GPUs[0].Named[1].Name != "" || s.Host.Total != 100<<10 {
		t.Errorf("%+v", s)
	}
	if text, err := json.Marshal(s); err != nil || !strings.Contains(string(text), `"named_processes":[{"pid":77`) {
		t.Errorf("%s, %v", text, err)
	}
	w.gpus = fakeGPUs{err: errors.New("driver is asleep")}
	if s := w.Look(); len(s.Notes) != 1 || len(s.GPUs) != 0 {
		t.Errorf("%+v", s)
	}
	none := &Watcher{proc: filepath.Join(proc, "nothing"), note: "no driver"}
	if s := none.Look(); len(s.Notes) != 2 || len(s.Lines()) != 1 || len(s.Rows()[0]) != len(Columns) {
		t.Errorf("%+v", s)
	}
}

func TestSpark(t *testing.T) {
	if got := spark([]float64{0, 1, 2, 3, 4, 4}, 10); utf8.RuneCountInString(got) != 3 {
		t.Errorf("%q", got)
	}
	if spark(nil, 10) != "" || spark([]float64{1}, 0) != "" {
		t.Error("nothing is drawn of nothing")
	}
	if got := spark(make([]float64, 1000), 5); utf8.RuneCountInString(got) != 5 {
		t.Errorf("%q", got)
	}
}

// A run that generates is shown with its tokens, its speed and the pages of its cache.
func TestGenerationOnTheScreen(t *testing.T) {
	list := []eventlog.Generation{{Step: 9, NewTokens: 50, DecodeSeconds: 0.5, TotalNew: 450, Sequences: 3, PagesUsed: 5, Pages: 10, ShareOfRoofline: 0.8, MeasuredBytes: 3 << 30, PredictedBytes: 3 << 30, Tiers: eventlog.Tiers{Device: 3 << 30, Pinned: 1 << 20}}}
	at := Snapshot{Runs: []RunInfo{{Dir: "/x/texts", State: Running, Summary: eventlog.Summary{Generated: &list[0], RecentGenerations: list}}}}
	view := &Screen{}
	view.Add(at)
	text := strings.Join(view.Draw(at, 160, 40), "\n")
	for _, want := range []string{"texts", "450 tokens", "100", "80%", "3 open", "device 3.00 GiB  pinned 1.00 MiB", "5 of 10 pages"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if lines := at.Lines(); !strings.Contains(lines[1], "run texts running tokens 450 tokens/s 100") {
		t.Errorf("%q", lines)
	}
}
