package main

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The program trains in half the memory, says why and how, and learns.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out, 60); err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for _, m := range regexp.MustCompile(`loss ([0-9.]+)`).FindAllStringSubmatch(out.String(), -1) {
		loss, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	if len(losses) != 7 || losses[6] > losses[0]/2 {
		t.Errorf("losses %v", losses)
	}
	for _, word := range []string{"because everything needs", "not standard: needs", "of host", "layers.3", "optimizer state", "swaps: "} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("no %q in\n%s", word, out.String())
		}
	}
	if strings.Contains(out.String(), "swaps: 0 in") {
		t.Error("nothing moved, so the limit was none")
	}
}
