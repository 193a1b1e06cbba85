package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
)

// With --json a program finds one object on the output whatever happens: what was asked for, or the failure.
func TestFailuresAreObjectsToo(t *testing.T) {
	sandbox(t)
	for _, args := range [][]string{
		{"inspect", "nosuch", "--json"},
		{"estimate", "nosuch", "--json"},
		{"train", "./model", "--data", "nosuch.jsonl", "--json"},
		{"train", "./model", "--json", "--nosuch"},
		{"generate", "./model", "--json"},
		{"merge", "./model", "nosuch", "out", "--json"},
		{"nosuch", "--json"},
		{"plan", "llama-3-70b", "--machine", "gpu:1GiB,host:1GiB", "--json"}, // says more itself
	} {
		r := command(t, args...)
		var object map[string]any
		if err := json.Unmarshal([]byte(r.out), &object); err != nil || r.code == exitOK {
			t.Errorf("%s: code %d, output %q: %v", strings.Join(args, " "), r.code, r.out, err)
			continue
		}
		if object["fits"] == false {
			continue
		}
		text, _ := object["error"].(string)
		if object["exit_code"] != float64(r.code) || text == "" || !strings.Contains(r.err, strings.Split(text, "\n")[0]) {
			t.Errorf("%s: code %d, object %v, stderr %q", strings.Join(args, " "), r.code, object, r.err)
		}
	}
	if r := command(t, "inspect", "nosuch"); r.out != "" {
		t.Errorf("without --json: %q", r.out)
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs strings.Builder
	code := run(stopped, []string{"bench", "cpu", "--json"}, shell{in: strings.NewReader(""), out: &out, err: &errs})
	var f failure
	if err := json.Unmarshal([]byte(out.String()), &f); err == nil && f.Error != "" && (f.Error != "interrupted" || f.ExitCode != code) {
		t.Errorf("interrupted: code %d, %+v, %s", code, f, errs.String())
	}
}

// What is stopped before it has ended by itself has an object too, and nothing follows it.
func TestStoppedCommandsLeaveAnObject(t *testing.T) {
	var out strings.Builder
	code := 0
	s := &signals{err: &strings.Builder{}, exit: func(c int) { code = c }}
	sh := shell{out: &out, signals: s}
	newJSONOutput([]string{"plan", "--json"}, &sh)
	came := make(chan os.Signal, 2)
	came <- syscall.SIGTERM
	came <- syscall.SIGTERM
	s.watch(came, func(error) {})
	var f failure
	if err := json.Unmarshal([]byte(out.String()), &f); err != nil || code != 143 || f.ExitCode != code || f.Error != "interrupted" {
		t.Errorf("code %d, %q: %v", code, out.String(), err)
	}
	if _, err := sh.out.Write([]byte("{}")); err == nil {
		t.Error("another object follows")
	}
}
