package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bar is a step in a file of Chrome's format; times are in microseconds.
type bar struct {
	Phase    string  `json:"ph"`
	Category string  `json:"cat"`
	Start    float64 `json:"ts"`
	Duration float64 `json:"dur"`
}

// bars reads the steps of a timeline, and says when the last ends, in seconds.
func bars(t *testing.T, path string) (verbs map[string]int, end float64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Events []bar `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	verbs = map[string]int{}
	for _, b := range file.Events {
		if b.Phase == "X" {
			verbs[b.Category]++
			end = max(end, (b.Start+b.Duration)/1e6)
		}
	}
	return verbs, end
}

// The timeline of an iteration ends with the forecast; where copies carry over, with the last
// of them, which an iteration among many does not wait for.
func TestPlanTimelineEndsWithTheForecast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.json")
	for task, carriesOver := range map[string]bool{"infer": false, "train --optimizer-device device": true} {
		options := append([]string{"plan", "llama-3-8b", "--task"}, strings.Fields(task)...)
		v := command(t, append(options, "--machine", "gpu:24GiB@25GB/s,host:192GiB", "--timeline", path, "--json")...).object(t)
		verbs, end := bars(t, path)
		want := at(t, v, "forecast.step_seconds").(float64)
		if !carriesOver && math.Abs(end-want) > 1e-6*want || carriesOver && (end < 1.001*want || end > 1.1*want) {
			t.Errorf("%s: the last step ends after %v s, the forecast is %v s", task, end, want)
		}
		if verbs["run"] == 0 || verbs["move"] == 0 || carriesOver != (verbs["update"] > 0) {
			t.Errorf("%s: steps are %v", task, verbs)
		}
	}
}

func TestTrainTimeline(t *testing.T) {
	dir := t.TempDir()
	limit, _ := tight(t)
	for _, steps := range []string{"2", "4"} { // fewer than settled, and more
		path := filepath.Join(dir, steps+".json")
		v := trainTiny(t, "--data", prose(t), "--max-steps", steps, "--out", filepath.Join(dir, steps), "--max-memory", limit, "--timeline", path).object(t)
		verbs, end := bars(t, path)
		if verbs["run"] == 0 || end <= 0 || end > at(t, v, "seconds").(float64) {
			t.Errorf("%s iterations: %v steps, the last ends after %v s", steps, verbs, end)
		}
	}
}

func TestTimelineWithoutAPlaceIsRefused(t *testing.T) {
	dir := t.TempDir()
	r := trainTiny(t, "--data", prose(t), "--max-steps", "2", "--out", filepath.Join(dir, "run"), "--timeline", filepath.Join(dir, "missing", "steps.json"))
	if r.code != exitFailed || !strings.Contains(r.err, "opening the timeline") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
		t.Error("it trained all the same")
	}
}
