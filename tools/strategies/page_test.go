package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway"
)

const page = "../../docs/strategies.md"

var rewrite = flag.Bool("rewrite", false, "write the lines of the page that are planned again anew")

// section is the lines of a shape on the page.
func section(t *testing.T, text, name string) map[string]string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+name+", ")
	if !ok {
		t.Fatalf("the page has no %s; write it anew with make strategies", name)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(rest) {
		if f := strings.Split(line, "|"); len(f) > 2 {
			rows[strings.TrimSpace(f[1])] = strings.TrimSpace(line)
		}
	}
	return rows
}

// Some cells of the page are planned again, each for itself, and compared.
func TestPageIsTrue(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		gib, devices int
	}{
		{"gpt2", 8, 1}, {"gpt2", 8, 4}, {"gpt2-xl", 24, 1}, {"llama-3.2-1b", 16, 2}, {"llama-3-8b", 24, 1}, {"llama-3-8b", 80, 1},
	} {
		table, err := newTable(c.name)
		if err != nil {
			t.Fatal(err)
		}
		var cells []cell
		for _, x := range table.cells {
			if x.gib != c.gib || x.devices != c.devices {
				continue
			}
			if _, err := table.plan(&x); err != nil {
				t.Fatal(err)
			}
			if x.theirs, err = table.rule(x); err != nil {
				t.Fatal(err)
			}
			cells = append(cells, x)
		}
		want := row(cells)
		head := strings.TrimSpace(strings.Split(want, "|")[1])
		got := section(t, string(raw), c.name)[head]
		if *rewrite {
			raw = bytes.Replace(raw, []byte(got), []byte(want), 1)
		} else if got != want {
			t.Errorf("%s: the page says\n%s\nnow it is\n%s\nwrite these lines anew with go test ./tools/strategies -rewrite, the page with make strategies", c.name, got, want)
		}
	}
	if *rewrite {
		if err := os.WriteFile(page, raw, 0o644); err != nil {
			t.Fatal(err)
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

// The rule by hand, in units of a card.
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
		if got := pick(c.weights, 1, c.devices, c.train); got != c.want {
			t.Errorf("weights of %v cards, %d cards, training %v: %s, want %s", c.weights, c.devices, c.train, got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	for title, want := range map[string]string{
		"standard": "standard",
		"data parallel on 8 devices with sharded weights (ZeRO-3), cpu offload, window 2, 3 of 34 slabs streamed, 2 of 34 slabs on disk, activations of 7 of 34 blocks on the host": "zero-3 + disk + cpu offload + spilling",
		"optimizer offload, 34 of 34 slabs, checkpointing 30 of 34 blocks": "optimizer offload + checkpointing",
	} {
		if got := short(title); got != want {
			t.Errorf("%s: %s, want %s", title, got, want)
		}
	}
}

// The tally counts what fits, what is slower and how much.
func TestTally(t *testing.T) {
	cells := []cell{
		{task: spillway.Train, strategy: "standard", seconds: 1, theirs: outcome{"standard", true, 1}},
		{task: spillway.Train, strategy: "zero-2", seconds: 1, theirs: outcome{"standard", true, 3}},
		{task: spillway.Train, strategy: "cpu offload", seconds: 1, theirs: outcome{"standard", false, 1}},
		{task: spillway.Infer, strategy: "standard", seconds: 1, theirs: outcome{"standard", true, 9}},
		{task: spillway.Train, strategy: "", theirs: outcome{"standard", false, 1}},
	}
	got := count([]*table{{cells: cells}}, "standard", spillway.Train)
	if got != (tally{cells: 3, lost: 1, slower: 1, times: 4}) || got.mean() != "2.00" {
		t.Errorf("%+v, mean %s", got, got.mean())
	}
}
