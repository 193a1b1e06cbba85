package main

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/eventlog"
	"spillway/monitor"
	"spillway/view"
)

// What generate does is in the event log of the folder that is asked for: every token, the plan,
// a step as forecast and as measured, and how it ended. A second run goes on with it, and the
// text is the one without.
func TestGenerateIsRecorded(t *testing.T) {
	dir := t.TempDir()
	out, log := filepath.Join(dir, "run"), filepath.Join(dir, "steps.csv")
	args := []string{"generate", "../../testdata/reference/llama", "--tokens", "1,2,3,4,5", "--max-new-tokens", "12", "--device", "cpu", "--ignore-eos"}
	plain := generatedObject(t, args...)
	for range 2 {
		got := generatedObject(t, append(args, "--out", out, "--log", log, "--profile")...)
		if !equalTokens(got.Tokens, plain.Tokens) {
			t.Errorf("recorded %v, else %v", got.Tokens, plain.Tokens)
		}
		if len(got.Profiles) != 2 || got.Profiles[0].Phase == got.Profiles[1].Phase || len(got.Profiles[1].Rows) < 10 {
			t.Errorf("%d profiles: %+v", len(got.Profiles), got.Profiles)
		}
	}
	r, err := view.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var prompt, fresh, steps int64
	for _, g := range r.Generations {
		prompt, fresh, steps = prompt+g.PromptTokens, fresh+g.NewTokens, steps+g.Steps
	}
	if len(r.Starts) != 2 || r.Starts[1].Task != "generate" || prompt != 10 || fresh != 24 || steps != r.Step() || r.End == nil || r.End.How != eventlog.Done {
		t.Errorf("%d starts, %d tokens of prompts, %d new ones, %d of %d steps, end %v", len(r.Starts), prompt, fresh, steps, r.Step(), r.End)
	}
	last := r.Generations[len(r.Generations)-1]
	if last.Finished != 1 || last.Sequences != 0 || last.PredictedBytes != last.MeasuredBytes || last.Positions != 16 || last.Forecast <= 0 {
		t.Errorf("%+v", last)
	}
	p, err := r.Plan()
	if err != nil || p == nil || len(p.Phases) == 0 {
		t.Fatalf("plan %v, %v", p, err)
	}
	var traced [2]string
	for _, at := range r.Traces {
		tr, err := r.ReadTrace(at)
		if err != nil {
			t.Fatal(err)
		}
		phase, err := p.Phase(at.Phase)
		if err != nil || len(tr.Events) != len(phase.Instructions) {
			t.Errorf("a trace of %d instructions of phase %q: %v", len(tr.Events), at.Phase, err)
		}
		traced[map[bool]int{true: 1}[at.Forecast]] = at.Phase
	}
	if traced[0] == "" || traced[0] != traced[1] {
		t.Errorf("measured is %q, forecast %q", traced[0], traced[1])
	}
	if state := monitor.Look(out).State; state != monitor.Done {
		t.Errorf("the run is %s", state)
	}
	table, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(table))).ReadAll()
	if err != nil || len(rows) != 1+len(r.Generations) || rows[1][0] != r.ID() {
		t.Errorf("%v: %s", err, table)
	}
	for format, want := range map[string]string{"csv": string(table), "jsonl": `"new_tokens":`, "profile": "matmul"} {
		file := filepath.Join(dir, format)
		command(t, "report", out, "--format", format, "--out", file, "--json").object(t)
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: %s", format, err, text)
		}
	}
}

func equalTokens(a, b []int32) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// Without a folder the event log is in the cache, where views find it; batches and conversations
// are recorded too.
func TestRecordedByTheWay(t *testing.T) {
	model := "../../testdata/reference/llama"
	before := len(monitor.Dirs(cache))
	r := command(t, "generate", model, "--tokens", "1,2,3", "--max-new-tokens", "4", "--device", "cpu", "--dashboard")
	if r.code != exitOK || !strings.Contains(r.err, "dashboard       http://127.0.0.1:") {
		t.Fatalf("%d: %s", r.code, r.err)
	}
	dirs := monitor.Dirs(cache)
	if len(dirs) != before+1 || monitor.Look(dirs[0]).Generated == nil {
		t.Errorf("%d runs are listed, %d were before", len(dirs), before)
	}
	for args, says := range map[string]string{
		"--out x --no-cache":           "leave --no-cache out",
		"--alert-command true":         "give --dashboard, --out or --log too",
		"--profile=size":               "it is sorted by",
		"--profile --quiet":            "leave one out",
		"--dashboard=999.1.1.1:1":      "serving the dashboard",
		"--log " + t.TempDir() + "/":   "opening the log",
		"--out ../../go.mod/x --quiet": "folder of the event log",
	} {
		if r := command(t, append([]string{"generate", model, "--tokens", "1,2", "--device", "cpu"}, strings.Fields(args)...)...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.err)
		}
	}
	trained := filepath.Join(t.TempDir(), "trained")
	trainTiny(t, "--data", prose(t), "--max-steps", "2", "--out", trained, "--device", "cpu").object(t)
	if r := command(t, "generate", model, "--tokens", "1,2", "--device", "cpu", "--out", trained); r.code == exitOK || !strings.Contains(r.err, "the task train") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// The profile of a training step has all of its arithmetic, and what its forward pass saves.
func TestTrainProfile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	v := trainTiny(t, "--data", prose(t), "--max-steps", "6", "--out", out, "--device", "cpu", "--profile=saved").object(t)
	raw, err := json.Marshal(at(t, v, "profile"))
	if err != nil {
		t.Fatal(err)
	}
	var p eventlog.Profile
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	r, err := view.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	plan, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var flops, most float64
	var saved int64
	busy := map[string]float64{}
	for i, row := range p.Rows {
		if row.Pass == "forward" || row.Pass == "backward" || row.Pass == "training" {
			if flops += row.Flops; row.Calls > 0 && row.Forecast <= 0 {
				t.Errorf("no forecast of %s in %s", row.Op, row.Module)
			}
		}
		busy[row.Lane] += row.Seconds
		saved += row.Saved
		if i > 0 && row.Saved > p.Rows[i-1].Saved {
			t.Errorf("row %d saves %d bytes, the one before %d", i, row.Saved, p.Rows[i-1].Saved)
		}
		most = max(most, row.Seconds)
	}
	if want := plan.Forecast.Flops; math.Abs(flops-want) > 1e-6*want {
		t.Errorf("%g operations, the plan has %g", flops, want)
	}
	var want int64 // what the memory view has at its peak can only be less
	for _, i := range plan.Instructions {
		if i.Verb == "run" {
			g := plan.Programs[i.Program].Graph
			if !strings.HasSuffix(g.Name, "forward") {
				continue
			}
			for _, port := range g.Outputs {
				if port.Role == "kept" {
					want += g.Type(port.Value).Bytes()
				}
			}
		}
	}
	if saved != want || saved == 0 {
		t.Errorf("%d bytes are saved, the plan's programs save %d", saved, want)
	}
	for lane, seconds := range busy {
		if seconds > p.Seconds*1.0001 {
			t.Errorf("%s works for %v s of a step of %v s", lane, seconds, p.Seconds)
		}
	}
	if p.Step != 4 || len(r.Profiles) != 1 || most == 0 {
		t.Errorf("step %d, %d profiles in the log", p.Step, len(r.Profiles))
	}
	text := command(t, "train", "tiny-llama", "--data", prose(t), "--seq-len", "64", "--max-steps", "2", "--out", out+"2", "--device", "cpu", "--profile")
	for _, says := range []string{"profile of step 2", "model.layers.*.mlp.up_proj backward", "attention_grad", "of roofline"} {
		if !strings.Contains(text.out, says) {
			t.Errorf("no %q in %s%s", says, text.out, text.err)
		}
	}
}
