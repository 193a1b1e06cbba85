package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/checkpoint"
	"spillway/eventlog"
)

// What is generated from a checkpoint is recorded under the name of its run too: every run has a step-00000003.
func TestCheckpointsAreNamedAfterTheirRun(t *testing.T) {
	dir := t.TempDir()
	saved := filepath.Join(dir, "rhymes", "step-00000003")
	if err := os.CopyFS(saved, os.DirFS("../../testdata/reference/llama")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(saved, checkpoint.ManifestName), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{saved, filepath.Dir(saved)} {
		out := filepath.Join(t.TempDir(), "out")
		generatedObject(t, "generate", model, "--tokens", "1,2,3", "--max-new-tokens", "2", "--device", "cpu", "--out", out)
		s, err := eventlog.Summarize(filepath.Join(out, eventlog.FileName))
		if err != nil || s.Start.Model != "rhymes-step-00000003" {
			t.Errorf("%s: %v, the model is called %q", strings.TrimPrefix(model, dir), err, s.Start.Model)
		}
	}
}
