package recipe

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A recipe that is nested without end is refused before the parser takes gigabytes for it.
func TestNestedRecipesAreRefused(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 100_000), "data: " + strings.Repeat("{a: ", 30_000), strings.Repeat("- ", 60_000), strings.Repeat("? ", 50_000),
		"data:\n" + strings.Repeat("[\n", 50_000),
	} {
		file := filepath.Join(t.TempDir(), "run.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(file)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%.20q: %v", text, err)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 64<<20 {
			t.Errorf("%.20q takes %d MB", text, made>>20)
		}
	}
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("# "+strings.Repeat("-", 70)+"\nmodel: x\ndata: [a.txt, b.txt]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(file); err != nil || r.Model != "x" {
		t.Errorf("a plain recipe: %v", err)
	}
}
