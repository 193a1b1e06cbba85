package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page is served on the address that is printed, and ends with the command.
func TestDashboard(t *testing.T) {
	run := filepath.Join(t.TempDir(), "seen")
	r := trainTiny(t, "--data", prose(t), "--max-steps", "4", "--out", run, "--device", "cpu", "--dashboard")
	r.object(t)
	if !strings.Contains(r.err, "dashboard       http://127.0.0.1:") {
		t.Errorf("training prints no address: %s", r.err)
	}
	for listen, withToken := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, in := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			ended <- runShell(ctx, []string{"dashboard", run, "--listen", listen, "--json"}, in)
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var started dashboardStarted
		if err := json.Unmarshal([]byte(line), &started); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(started.URL, "?token=") != withToken {
			t.Errorf("%s is served on %s", listen, started.URL)
		}
		at, err := url.Parse(started.URL)
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := os.Hostname(); withToken && at.Hostname() != name { // what another computer can open
			t.Errorf("%s is served on %s, this computer is %s", listen, started.URL, name)
		}
		at.Host = net.JoinHostPort("127.0.0.1", at.Port())
		address := at.String()
		for what, want := range map[string]int{address: http.StatusOK, strings.Split(address, "?")[0]: map[bool]int{false: 200, true: 401}[withToken]} {
			answer, err := http.Get(what)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s: %d, want %d", what, answer.StatusCode, want)
			}
		}
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("it ends with %d", code)
		}
	}
	if r := command(t, "dashboard", "--listen", "300.1.1.1:0"); r.code != exitFailed || !strings.Contains(r.err, "name another address, such as 127.0.0.1:0") {
		t.Errorf("%d: %s", r.code, r.err)
	}
	for _, wrong := range []string{"", "7070", "127.0.0.1"} {
		if r := command(t, "dashboard", "--listen", wrong); r.code != exitUsage || !strings.Contains(r.err, "it is ADDRESS:PORT") {
			t.Errorf("%q: %d: %s", wrong, r.code, r.err)
		}
	}
	// A folder that has no log yet may have one later.
	none := filepath.Join(t.TempDir(), "later")
	if r := command(t, "top", none, "--count", "1"); r.code != exitOK || !strings.Contains(r.err, none+" has no event log yet") {
		t.Errorf("%d: %s", r.code, r.err)
	}
}

// runShell runs a command with its output in a pipe.
func runShell(ctx context.Context, args []string, out io.Writer) int {
	return run(ctx, args, shell{in: strings.NewReader(""), out: out, err: io.Discard, cache: cache})
}

// A run that diverges is an alert that reaches a command.
func TestAlertCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "alert.json")
	r := command(t, "train", "tiny-llama", "--micro-batch-size", "2", "--seq-len", "64", "--data", prose(t), "--device", "cpu", "--out", filepath.Join(dir, "run"), "--max-steps", "30", "--learning-rate", "1e30",
		"--alert-command", "cat > "+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; the run ended with %d: %s", err, r.code, r.err)
	}
	if !strings.Contains(string(text), `"name":"diverged"`) || !strings.Contains(r.err, "alert at step") {
		t.Errorf("%s; %s", text, r.err)
	}
}
