package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/checkpoint"
)

// asProgram is set in the environment of a test binary that is to be the program.
const asProgram = "SPILLWAY_AS_PROGRAM"

// program is a command line in a process of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) { // as in the background of a script: a program would ignore it too
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	p := exec.Command(os.Args[0], args...)
	p.Env = append(os.Environ(), asProgram+"=1", "XDG_CACHE_HOME="+filepath.Dir(cache))
	return p
}

// Ctrl-C, kill and a closed terminal end a training run with a checkpoint, and with the exit
// code that says so.
func TestSignalsSaveTheRun(t *testing.T) {
	text := prose(t)
	command(t, "devices") // what it measures is cached for the programs
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		out := filepath.Join(t.TempDir(), "run")
		p := program(t, "train", "tiny-llama", "--data", text, "--batch-size", "2", "--seq-len", "64", "--max-steps", "1000000", "--eval-steps", "1", "--out", out)
		screen, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(screen)
		for lines.Scan() && !strings.Contains(lines.Text(), "step 2 ") {
		}
		if err := p.Process.Signal(sig); err != nil {
			t.Error(err)
		}
		rest, err := io.ReadAll(screen)
		if err != nil {
			t.Error(err)
		}
		if p.Wait(); p.ProcessState.ExitCode() != code || !strings.Contains(string(rest), "--resume --out "+out) {
			t.Errorf("%v: exit code %d, %s", sig, p.ProcessState.ExitCode(), rest)
		}
		c, err := checkpoint.Dir{Path: out}.Latest()
		if err != nil {
			t.Errorf("%v: %v", sig, err)
			continue
		}
		c.Close() // opened for reading
	}
}

// What has nothing to save ends soon after the first signal.
func TestSignalsEndOtherCommands(t *testing.T) {
	command(t, "devices")
	for _, args := range [][]string{{"bench", "cpu"}, {"devices", "--calibrate"}} {
		p := program(t, args...)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			continue // it has ended already
		}
		p.Wait()
		// -1 where the signal came before the program had begun.
		if code, took := p.ProcessState.ExitCode(), time.Since(start); code != 130 && code != -1 || took > 120*graceTime {
			t.Errorf("%v: exit code %d after %v", args, code, took)
		}
	}
}

// A command that does not end by itself is ended after a while, and says so.
func TestSignalsSayThatTheyWaitNoLonger(t *testing.T) {
	var said strings.Builder
	code := make(chan int, 1)
	s := &signals{exit: func(c int) { code <- c }, err: &said}
	came := make(chan os.Signal, 2)
	came <- syscall.SIGINT
	s.watch(came, func(error) {})
	if c := <-code; c != 130 || !strings.Contains(said.String(), "stopped after 1s") {
		t.Errorf("exit code %d: %q", c, said.String())
	}
}
