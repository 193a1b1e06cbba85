//go:build unix

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
)

// A prompt may come from a named pipe, as a shell has one for <(command).
func TestPromptsFromPipes(t *testing.T) {
	sandbox(t)
	for _, flag := range []string{"--file", "--prompts"} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skipf("no pipes here: %v", err)
		}
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(pipe, []byte("to be"), 0o600) }()
		flags := []string{"generate", "model", "--tokenizer", "bytes", "--device", "cpu", "--max-new-tokens", "3", "--json"}
		got := command(t, append(flags, flag, pipe)...).object(t)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		want := command(t, append(flags, "--prompt", "to be")...).object(t)
		if !reflect.DeepEqual(at(t, got, "tokens"), at(t, want, "tokens")) || at(t, got, "prompt_tokens") != 5.0 {
			t.Errorf("%s: %v of %v tokens, want %v", flag, at(t, got, "tokens"), at(t, got, "prompt_tokens"), at(t, want, "tokens"))
		}
	}
}
