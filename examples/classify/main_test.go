package main

import (
	"fmt"
	"strings"
	"testing"
)

// The network learns: it is right about nearly all new images.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 40); err != nil {
		t.Fatal(err)
	}
	var right, of int
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if _, err := fmt.Sscanf(lines[len(lines)-1], "right: %d of %d", &right, &of); err != nil || right < of-3 {
		t.Errorf("printed %q (%v)", out.String(), err)
	}
}
