package inference_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/inference"
)

// A model whose file is written to while it is loaded is not used: its weights would be of two models.
func TestFilesThatChangeWhileTheyAreLoaded(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../testdata/reference/llama")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "model.safetensors")
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // clocks of files are coarse
		t.Fatal(err)
	}
	calls := 0
	m, err := inference.Open(inference.Settings{Model: folder, Device: "cpu", Progress: func(string, int64, int64) {
		if calls++; calls != 3 { // in the middle
			return
		}
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte{1, 2, 3, 4}, 50_000)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := m.Start(context.Background(), inference.Size{Context: 16})
	if err == nil {
		e.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("after %d calls: %v", calls, err)
	}
}
