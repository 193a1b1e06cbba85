package main

import (
	"strings"
	"testing"
)

// Where making a plan takes long, a terminal shows what is tried, and Ctrl-C ends it without waiting for the end of the search.
func TestPlanningInATerminal(t *testing.T) {
	x := inTerminal(t, "plan", "llama-3-70b", "--batch-size", "256", "--seq-len", "512", "--machine", "8xh100,host:4TiB")
	x.wait(" tried, now ")
	x.write("\x03")
	x.wait("spillway plan: interrupted")
	if err := x.program.Wait(); err == nil || x.program.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(x.screen.String(), "does not look for Ctrl-C") {
		t.Errorf("%q", x.screen.String())
	}
}
