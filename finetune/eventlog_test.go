package finetune

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/eventlog"
	"spillway/monitor"
	"spillway/plan"
)

// The event log of a run has its settings, plan and forecast, every step as the log file has
// it, a trace with an event per instruction, and its checkpoints; a run that goes on adds to
// it, and one whose log is damaged begins another.
func TestEventLog(t *testing.T) {
	dir := t.TempDir()
	out, log := filepath.Join(dir, "out"), filepath.Join(dir, "log.jsonl")
	set := map[string]string{"model": byteModelFile(t), "data": texts(t, 200, 200), "device": "cpu", "seq-len": "32", "max-steps": "4", "log": log, "out": out, "eval-split": "0.5", "eval-steps": "2", "save-steps": "2"}
	losses(t, settings(t, set), Options{})
	path := filepath.Join(out, eventlog.FileName)
	read := func() *eventlog.Log {
		t.Helper()
		l, err := eventlog.Follow(path)
		if err != nil || l.Damaged != nil {
			t.Fatal(err, l)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := read()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 4 || len(l.Iterations) != 4 || len(l.Plans) != 1 || len(l.Traces) != 2 || len(l.Checkpoints) != 2 || l.End == nil || l.End.How != eventlog.Done {
		t.Fatalf("%d lines; %d iterations, %d plans, %d traces, %d checkpoints, end %v", len(lines), len(l.Iterations), len(l.Plans), len(l.Traces), len(l.Checkpoints), l.End)
	}
	for i, line := range lines {
		var it eventlog.Iteration
		if err := json.Unmarshal([]byte(line), &it); err != nil {
			t.Fatal(err)
		}
		got := l.Iterations[i]
		got.Resident = it.Resident // the log file has the peak
		if it != got {
			t.Errorf("the log has %+v, the event log %+v", it, got)
		}
	}
	if it := l.Iterations[3]; it.EvalLoss == 0 || it.BestEval == 0 || it.BestEval > it.EvalLoss || it.Tokens == 0 || it.Forecast <= 0 || it.Bound.String() == "" || it.Tiers.Device == 0 {
		t.Errorf("%+v", it)
	}
	recorded, err := l.ReadPlan(l.Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(bytes.NewReader(recorded.Plan))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range l.Traces {
		tr, err := l.ReadTrace(at)
		if err != nil || len(tr.Events) != len(p.Instructions) {
			t.Errorf("%d events of %d instructions, %v", len(tr.Events), len(p.Instructions), err)
		}
	}

	set["max-steps"], set["resume"], set["allow-changes"] = "6", "true", "true"
	losses(t, settings(t, set), Options{})
	again := read()
	if len(again.Iterations) != 6 || len(again.Starts) != 2 || again.Starts[0].Run != again.Starts[1].Run || again.Starts[1].Step != 4 {
		t.Errorf("%d iterations, starts %+v", len(again.Iterations), again.Starts)
	}

	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged[60] ^= 1
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	var notices []string
	set["max-steps"] = "7"
	losses(t, settings(t, set), Options{Notice: func(text string) { notices = append(notices, text) }})
	if l := read(); len(l.Iterations) != 1 || !strings.Contains(strings.Join(notices, "\n"), "is damaged at byte") {
		t.Errorf("%d iterations; notices %q", len(l.Iterations), notices)
	}
}

// A trace is made when somebody asks for one.
func TestTraceOnRequest(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	set := map[string]string{"model": byteModelFile(t), "data": texts(t, 200, 200), "device": "cpu", "seq-len": "32", "max-steps": "4", "out": out}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := monitor.RequestTrace(out); err != nil {
		t.Fatal(err)
	}
	losses(t, settings(t, set), Options{})
	if _, err := os.Stat(filepath.Join(out, monitor.TraceRequest)); err == nil {
		t.Error("nobody saw the request")
	}
}
