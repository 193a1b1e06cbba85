package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"spillway/finetune"
)

// A run with a policy on optimizer state writes a line per iteration; states shrink when it
// begins, and a resumed run goes on in the same file.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	path, out, text := filepath.Join(dir, "run.csv"), filepath.Join(dir, "run"), prose(t)
	args := []string{"--data", text, "--out", out, "--optim", "paged_adamw_32bit", "--state-policy", "low-memory:warmup=3", "--log", path}
	trainTiny(t, append(args, "--max-steps", "4")...).object(t)
	trainTiny(t, append(args, "--max-steps", "6", "--resume")...).object(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || len(lines) != 7 || !slices.Equal(lines[0], finetune.Columns) {
		t.Fatalf("%d lines, %v: %v", len(lines), err, lines)
	}
	column := func(line int, name string) string { return lines[line][slices.Index(finetune.Columns, name)] }
	number := func(line int, name string) float64 {
		v, err := strconv.ParseFloat(column(line, name), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i := 1; i < len(lines); i++ {
		if column(i, "step") != strconv.Itoa(i) || number(i, "loss") <= 0 || column(i, "compression_active") != strconv.FormatBool(i >= 3) {
			t.Errorf("line %d: %v", i, lines[i])
		}
	}
	if before, after := number(1, "tensor_mem_mb"), number(6, "tensor_mem_mb"); after > 0.6*before {
		t.Errorf("states took %v MB and take %v", before, after)
	}
}

// A plan tells what its policy leads to.
func TestPlanWithPolicy(t *testing.T) {
	args := []string{"plan", "llama-3.2-1b", "--machine", "gpu:24GiB,host:64GiB", "--json"}
	v := command(t, append(args, "--state-policy", "low-memory")...).object(t)
	after, before := at(t, v, "compressed.state_bytes").(float64), at(t, v, "compressed.state_bytes_before").(float64)
	if ratio := after / before; ratio < 3.0/8 || ratio > 3.1/8 { // 1 + 2 bytes and scales for 4 + 4
		t.Errorf("states take %v bytes after %v", after, before)
	}
	now := command(t, append(args, "--state-policy", "max-compression")...).object(t)
	if _, there := now["compressed"]; there {
		t.Error("a policy that begins at once has nothing to tell of later")
	}
}
