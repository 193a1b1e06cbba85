package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/eventlog"
)

// Runs are compared and reported by their folders, also one whose log was cut.
func TestCompareAndReport(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	trainTiny(t, "--data", prose(t), "--max-steps", "4", "--out", a, "--device", "cpu").object(t)
	trainTiny(t, "--data", prose(t), "--max-steps", "3", "--out", b, "--device", "cpu", "--optimizer", "adamw8bit").object(t)
	log := filepath.Join(b, eventlog.FileName)
	whole, err := os.ReadFile(log)
	if err == nil {
		err = os.WriteFile(log, whole[:len(whole)-5], 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := command(t, "compare", a, b, "--json").object(t)
	if runs := at(t, v, "runs").([]any); len(runs) != 2 || runs[0] != "a" {
		t.Errorf("runs %v", runs)
	}
	text := command(t, "compare", a, b)
	for _, want := range []string{"loss, last", "optimizer state", "settings that differ", "adamw8bit"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("no %q in %s%s", want, text.out, text.err)
		}
	}
	svg := filepath.Join(dir, "loss.svg")
	if r := command(t, "compare", a, b, "--metric", "loss", "--picture", svg); r.code != exitOK {
		t.Error(r.err)
	}
	if r := command(t, "compare", a, "--metric", "loss", "--csv"); strings.Count(r.out, "\n") != 5 {
		t.Errorf("%s%s", r.out, r.err)
	}
	if picture, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(picture), "<svg") {
		t.Errorf("%v: %.40s", err, picture)
	}
	page := filepath.Join(dir, "run.html")
	if v := command(t, "report", a, "--out", page, "--json").object(t); at(t, v, "runs") != 1.0 || at(t, v, "bytes").(float64) < 1000 {
		t.Errorf("%v", v)
	}
	// What a run is written as for others has all its steps; the lines are those of train --log.
	for format, want := range map[string]int{"tensorboard": 5, "chrome": 1, "memory-snapshot": 1, "jsonl": 4, "csv": 5} {
		file := filepath.Join(dir, format)
		command(t, "report", a, "--format", format, "--out", file, "--json").object(t)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); (format == "jsonl" || format == "csv") && n != want {
			t.Errorf("%s has %d lines: %s", format, n, text)
		}
	}
	for args, says := range map[string]string{
		"report " + a + " --format csv":               "with --out for the file",
		"report " + a + " --format png":               "no format is called",
		"compare":                                     "at least one RUN",
		"compare " + dir:                              "a run is a folder that train --out wrote",
		"compare " + a + " --picture x":               "give --metric too",
		"compare " + a + " --metric loss --picture x": "ends with .svg or .png",
		"compare " + a + " --metric speed":            "no metric is called",
		"compare " + a + " --metric grad_norm":        "none of these runs",
		"report " + filepath.Join(a, "recipe.yaml"):   "is not an event log",
	} {
		if r := command(t, strings.Fields(args)...); r.code == exitOK || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.err)
		}
	}
}
