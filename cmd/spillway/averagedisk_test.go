package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Evaluating the average of weights changes what a journal on disk has, and changes it back: the run goes on, and is
// the one that takes the same steps without an evaluation.
func TestAveragesOnDiskAreEvaluated(t *testing.T) {
	dir := t.TempDir()
	model, data := filepath.Join(dir, "model"), prose(t)
	works(t, "init", "tiny-llama", "--out", model)
	train := func(name string, more ...string) {
		t.Helper()
		args := []string{"train", model, "--data", data, "--tokenizer", "bytes", "--seq-len", "128", "--batch-size", "4", "--max-steps", "5", "--ema", "0.9",
			"--max-memory", "3MiB", "--max-host-memory", "3MiB", "--disk", filepath.Join(dir, "disk-"+name), "--out", filepath.Join(dir, name)}
		r := command(t, append(args, more...)...)
		if r.code != exitOK || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "disk offload") {
			t.Fatalf("%s: code %d, %s%s", name, r.code, r.out, r.err)
		}
	}
	train("evaluated", "--eval-data", data, "--eval-steps", "2", "--eval-batches", "1")
	train("plain", "--micro-batch-size", "1")
	saved := func(name string) []byte {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(dir, name, "step-00000005", "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if !bytes.Equal(saved("evaluated"), saved("plain")) {
		t.Error("evaluations changed the weights")
	}
}
