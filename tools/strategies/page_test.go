package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway"
	"spillway/arch"
)

const page = "../../docs/strategies.md"

// line finds the line of a shape and a machine on the page.
func line(t *testing.T, text, name string, gib, devices int) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+name+", ")
	if !ok {
		t.Fatalf("the page has no %s; write it anew with make strategies", name)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		var n, from, to int
		if got, _ := fmt.Sscanf(line, "| %d × %d to %d GiB", &n, &from, &to); got == 2 {
			to = from
		}
		if n == devices && from <= gib && gib <= to {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("the page has no %d × %d GiB of %s", devices, gib, name)
	return ""
}

// A cell of every shape is planned again, by itself, and compared with the page: small
// shapes on several GPUs, large ones, which take longer, on one.
func TestPageIsTrue(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range arch.Presets() {
		table, err := newTable(name)
		if err != nil {
			t.Fatal(err)
		}
		c := cell{GiB: sizes[i%len(sizes)], Devices: 1, Task: tasks[i/2%len(tasks)]}
		switch {
		case table.params < 1e9:
			c.Devices = counts[i%len(counts)]
		case table.params > 10e9:
			c.Task = spillway.Infer
		}
		if _, err := table.plan(&c); err != nil {
			t.Fatal(err)
		}
		if c.Theirs, err = table.rule(c); err != nil {
			t.Fatal(err)
		}
		if got, want := ofTask(line(t, string(raw), name, c.GiB, c.Devices), c.Task), "|"+c.columns(); !same(got, want) {
			t.Errorf("%s, %s: the page says\n%s\nnow it is\n%s\nwrite it anew with make strategies", name, c.Task, got, want)
		}
	}
}

// ofTask is the machine of a line and the columns of one task.
func ofTask(line string, task spillway.Task) string {
	parts, at := strings.Split(line, "|"), 2+2*slices.Index(tasks, task)
	return strings.Join(append(parts[:2:2], parts[at], parts[at+1], ""), "|")
}

// near is how far a time may be from the page's: a search that finds something a bit
// better is no reason to plan everything anew.
const near = 0.05

// same says whether a line of the page is true: what the rule picks and what fits
// are equal, times are near.
func same(page, now string) bool {
	a, b := strings.Split(page, "|")[2:], strings.Split(now, "|")[1:]
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := measured(a[i]), measured(b[i])
		if strings.Contains(a[i], "✗") != strings.Contains(b[i], "✗") || (x == 0) != (y == 0) || math.Abs(x-y) > near*y {
			return false
		}
		if rule := i%2 == 1; rule && strings.Split(a[i], ",")[0] != strings.Split(b[i], ",")[0] {
			return false
		}
	}
	return true
}

// measured is the number of a cell, times in seconds; 0 where there is none.
func measured(cell string) float64 {
	text := strings.TrimSpace(cell[strings.LastIndex(cell, ",")+1:])
	for unit, scale := range map[string]float64{" ms": 1e-3, " s": 1, "×": 1} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			if f, err := strconv.ParseFloat(number, 64); err == nil {
				return f * scale
			}
		}
	}
	return 0
}

// The comparison sees what matters.
func TestSame(t *testing.T) {
	const line = "| 1 × 8 GiB | standard, 60.8 ms | standard, 1.0× | zero-2, 1.2 s | cpu offload ✗ |"
	for now, want := range map[string]bool{
		"| standard, 60.8 ms | standard, 1.0× | zero-2, 1.2 s | cpu offload ✗ |":         true,
		"| cpu offload, 60 ms | standard, 1.0× | zero-2, 1.21 s | cpu offload ✗ |":       true,
		"| standard, 50.8 ms | standard, 1.0× | zero-2, 1.2 s | cpu offload ✗ |":         false,
		"| standard, 60.8 ms | checkpointing, 1.0× | zero-2, 1.2 s | cpu offload ✗ |":    false,
		"| standard, 60.8 ms | standard, 1.0× | zero-2, 1.2 s | cpu offload, 2× |":       false,
		"| standard, 60.8 ms | standard, 1.0× | does not fit the host | cpu offload ✗ |": false,
	} {
		if got := same(line, now); got != want {
			t.Errorf("%s: %v, want %v", now, got, want)
		}
	}
}

// The head of the page and its explanations are those of the program.
func TestPageIsGenerated(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var empty bytes.Buffer
	writePage(&empty, nil)
	head, _, _ := strings.Cut(empty.String(), "\n## What comes of the rule")
	if !bytes.HasPrefix(raw, []byte(head)) || !bytes.Contains(raw, []byte(reasons)) {
		t.Errorf("%s was edited, or the program has changed; write it anew with make strategies", filepath.Base(page))
	}
}

// The rule by hand, in units of a GPU.
func TestRule(t *testing.T) {
	for _, c := range []struct {
		weights float64
		devices int
		train   bool
		want    string
	}{
		{0.26, 1, true, "standard"}, {0.27, 1, true, "checkpointing"}, {0.79, 1, true, "checkpointing"}, {0.81, 1, true, "cpu offload"},
		{0.53, 1, false, "standard"}, {0.54, 1, false, "checkpointing"},
		{0.49, 4, false, "data parallel"}, {0.49, 4, true, "checkpointing"}, {0.51, 4, false, "standard"},
		{0.81, 4, true, "model parallel"}, {3.1, 4, true, "model parallel"}, {3.3, 4, false, "cpu offload"},
	} {
		if got := ruleOfThumb(c.weights, 1, c.devices, c.train); got != c.want {
			t.Errorf("weights of %v GPUs, %d GPUs, training %v: %s, want %s", c.weights, c.devices, c.train, got, c.want)
		}
	}
}

// The tally counts what fits, what is slower and how much.
func TestTally(t *testing.T) {
	cells := []cell{
		{Devices: 2, Task: spillway.Train, Strategy: "standard", Seconds: 1, Theirs: outcome{"standard", true, 1}},
		{Devices: 2, Task: spillway.Train, Strategy: "zero-2", Seconds: 1, Theirs: outcome{"standard", true, 3}},
		{Devices: 2, Task: spillway.Train, Strategy: "cpu offload", Seconds: 1, Theirs: outcome{"standard", false, 1}},
		{Devices: 2, Task: spillway.Infer, Strategy: "standard", Seconds: 1, Theirs: outcome{"standard", true, 9}},
		{Devices: 1, Task: spillway.Train, Strategy: "standard", Seconds: 1, Theirs: outcome{"standard", true, 9}},
		{Devices: 2, Task: spillway.Train, Strategy: "", Theirs: outcome{"standard", false, 1}},
	}
	got := count([]*table{{cells: cells}}, true, "standard", spillway.Train)
	if got != (tally{cells: 3, lost: 1, slower: 1, times: 4}) || got.mean() != "2.00" {
		t.Errorf("%+v, mean %s", got, got.mean())
	}
}
