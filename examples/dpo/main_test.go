package main

import (
	"fmt"
	"strings"
	"testing"
)

// Before training no text is preferred, so that the loss is log 2; after it the chosen ones are.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 40); err != nil {
		t.Fatal(err)
	}
	var step, preferred, of int
	var first, last float64
	if _, err := fmt.Sscanf(out.String(), "step %d loss %f\nstep %d loss %f\npreferred: %d of %d", &step, &first, &step, &last, &preferred, &of); err != nil ||
		first < 0.693 || first > 0.6933 || !(last < 0.5) || preferred < of-1 {
		t.Errorf("printed %q (%v)", out.String(), err)
	}
}
