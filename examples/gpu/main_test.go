package main

import (
	"fmt"
	"strings"
	"testing"
)

// It learns within a quarter of the memory, and says where.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 4, 20); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	var first, last float64
	var took, need int64
	for line := range strings.Lines(out.String()) {
		_, numbers, _ := strings.Cut(line, ": ")
		switch {
		case strings.HasPrefix(line, "iteration 1:"):
			_, _ = fmt.Sscanf(numbers, "loss %f", &first)
		case strings.HasPrefix(line, "iteration 20:"):
			_, _ = fmt.Sscanf(numbers, "loss %f", &last)
		case strings.Contains(line, "ms an iteration"):
			_, _ = fmt.Sscanf(numbers, "%d of %d bytes", &took, &need)
		}
	}
	if !(last < 0.9*first) {
		t.Errorf("the loss goes from %v to %v", first, last)
	}
	if took == 0 || took > need/4 {
		t.Errorf("%d bytes taken, a quarter of %d allowed", took, need)
	}
}
