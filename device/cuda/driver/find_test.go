package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A library that is nowhere gives an error that says which, where and how to get it.
func TestMissing(t *testing.T) {
	folder := t.TempDir()
	_, err := find(library{"nothing", []string{"libspillway-nothing.so.1", "libspillway-nothing.so"}, "do not look for it"}, []string{folder})
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	if !slices.Contains(missing.Tried, folder) {
		t.Errorf("tried %v, not %s", missing.Tried, folder)
	}
	for _, word := range []string{"nothing", "libspillway-nothing.so.1", "do not look for it"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not hold %q", err, word)
		}
	}
}

// A file of the right name that is no library is named with the reason.
func TestNotALibrary(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "lib", "python3.11", "site-packages", "nvidia", "cu13", "lib")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "libspillway-nothing.so")
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	missing := &MissingError{}
	lib := openIn(library{names: []string{"libspillway-nothing.so"}}, expand([]string{filepath.Join(root, below[3])}), missing)
	if lib != nil || missing.Cause == nil || !strings.Contains(missing.Cause.Error(), path) {
		t.Errorf("got %v with cause %v", lib, missing.Cause)
	}
}

func TestError(t *testing.T) {
	e := &Error{Call: "cuMemAlloc", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"}
	if got, want := e.Error(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
