package main

import (
	"encoding/csv"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/monitor"
)

// Looks are written as lines, as objects and as a table, and runs are found by themselves.
func TestTop(t *testing.T) {
	run := filepath.Join(t.TempDir(), "seen-by-top")
	trainTiny(t, "--data", prose(t), "--max-steps", "2", "--out", run, "--device", "cpu").object(t)
	r := command(t, "top", "--count", "2", "--every", "100ms")
	if r.code != exitOK || strings.Count(r.out, " host ") != 2 || !strings.Contains(r.out, "run seen-by-top done step 2 of 2") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	r = command(t, "top", "--count", "2", "--every", "100ms", "--json")
	for line := range strings.Lines(r.out) {
		var s monitor.Snapshot
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Host.Total == 0 || len(s.Runs) == 0 {
			t.Errorf("%v: %s", err, line)
		}
	}
	r = command(t, "top", "--count", "2", "--every", "100ms", "--csv")
	if rows, err := csv.NewReader(strings.NewReader(r.out)).ReadAll(); err != nil || len(rows) < 3 {
		t.Errorf("%v: %s", err, r.out)
	}
	for args, says := range map[string]string{"top --every 1ms": "too often", "top --json --csv": "give one", "top --count -1": "cannot be negative"} {
		if r := command(t, strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, says) {
			t.Errorf("%s: %d, %s", args, r.code, r.err)
		}
	}
}

// In a real terminal the view fills the window, follows its size and gives it back.
func TestTopInATerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	binary := filepath.Join(t.TempDir(), "spillway")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Skipf("the program cannot be built here: %v: %s", err, text)
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(args ...string) string {
		t.Helper()
		text, err := exec.Command("tmux", append([]string{"-S", socket}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v: %s", args, err, text)
		}
		return string(text)
	}
	tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh")
	defer exec.Command("tmux", "-S", socket, "kill-server").Run() // it ends with the test
	// shows waits until texts are on the screen, and its first line begins with another.
	shows := func(first string, what ...string) string {
		t.Helper()
		var text string
		for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			text = tmux("capture-pane", "-p")
			found := 0
			for _, w := range what {
				if strings.Contains(text, w) {
					found++
				}
			}
			if found == len(what) && strings.HasPrefix(text, first) {
				return text
			}
		}
		t.Fatalf("%q and %q do not appear:\n%s", first, what, text)
		return ""
	}
	tmux("send-keys", "echo before; "+binary+" top --every 200ms", "Enter")
	shows("spillway top", "CPU", "memory", "q quits")
	for _, size := range [][2]string{{"200", "60"}, {"100", "30"}, {"80", "24"}} {
		tmux("resize-window", "-x", size[0], "-y", size[1])
		time.Sleep(500 * time.Millisecond) // so that it has drawn at that size, if it is not late
		shows("spillway top", "q quits")
	}
	tmux("send-keys", "q")
	if text := shows("", "before"); strings.Contains(text, "q quits") {
		t.Errorf("the window was not given back:\n%s", text)
	}
}
