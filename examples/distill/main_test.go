package main

import (
	"fmt"
	"strings"
	"testing"
)

// The student learns what the teacher says.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 80); err != nil {
		t.Fatal(err)
	}
	var first, last float64
	if _, err := fmt.Sscanf(out.String(), "first loss %f\nloss of the averaged student %f", &first, &last); err != nil || !(last < first/3) {
		t.Errorf("printed %q (%v)", out.String(), err)
	}
}
