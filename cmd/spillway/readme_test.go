package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The plan that the README shows is the one its command prints.
func TestReadmeShowsThePlan(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n$ spillway ")
	line, rest, ok := strings.Cut(rest, "\n")
	shown, _, closed := strings.Cut(rest, "```")
	if !found || !ok || !closed {
		t.Fatal("the README shows no command with what it prints")
	}
	if got := command(t, strings.Fields(line)...).out; got != shown {
		t.Errorf("spillway %s prints\n%s\nthe README shows\n%s", line, got, shown)
	}
}
