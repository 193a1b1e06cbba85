package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/offheap"
)

// interruptions are how long commands run before they are interrupted: from before anything is
// open to the middle of a text.
var interruptions = []time.Duration{0, 4 * time.Millisecond, 25 * time.Millisecond, 120 * time.Millisecond}

// Commands that use a model end soon after Ctrl-C in every phase, and leave nothing behind: no
// goroutine, no memory outside the heap, no file.
func TestInterruptedGeneration(t *testing.T) {
	sandbox(t)
	config := `{"model_type":"llama","vocab_size":256,"hidden_size":128,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":4,
"intermediate_size":256,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":8192}`
	if err := os.WriteFile("slow.json", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	works(t, "init", "slow.json", "--out", "slow")
	prompts := strings.Repeat("to be or not to be\n", 40)
	questions := strings.Repeat(`{"question":"how much is 2?","choices":["it is 4","it is five"],"answer":0}`+"\n", 400)
	if err := os.WriteFile("many.jsonl", []byte(questions), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"generate", "./slow", "--prompt", "to be", "--max-new-tokens", "8000", "--ignore-eos"},
		{"generate", "./slow", "--prompt", strings.Repeat("to be or not ", 500), "--max-new-tokens", "500", "--ignore-eos"},
		{"generate", "./slow", "--prompt", "to be", "--max-new-tokens", "2000", "--num-beams", "3"},
		{"generate", "./slow", "--prompt", "to be", "--max-new-tokens", "8000", "--ignore-eos", "--dashboard", "--profile"},
		{"generate", "./slow", "--prompts", "-", "--max-new-tokens", "2000", "--ignore-eos", "--streams", "4", "--json"},
		{"eval", "./slow", "--questions", "many.jsonl"},
		{"eval", "./slow", "--data", "book.txt", "--seq-len", "32"},
		{"bench", "generate", "./slow", "--context", "4000", "--streams", "1,2"},
	} {
		before, goroutines, mapped := filesIn(t, "."), runtime.NumGoroutine(), offheap.Mapped()
		for _, after := range interruptions {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after, cancel)
			var out, errs bytes.Buffer
			start := time.Now()
			code := run(ctx, args, shell{in: strings.NewReader(prompts), out: &out, err: &errs, cache: cache})
			cancel()
			if took := time.Since(start) - after; took > 2*time.Minute {
				t.Errorf("%s after %v: it took another %v to end", strings.Join(args[:2], " "), after, took)
			}
			if code != 130 && (code != exitOK || args[0] != "eval") { // which ends soon by itself
				t.Errorf("%.60s after %v: exit code %d, %s", strings.Join(args, " "), after, code, errs.String())
			}
		}
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if n, m, now := runtime.NumGoroutine(), offheap.Mapped(), filesIn(t, "."); n > goroutines || m != mapped || !slices.Equal(now, before) {
			t.Errorf("%.60s: %d goroutines instead of %d, %d bytes mapped instead of %d, files %v", strings.Join(args, " "), n, goroutines, m, mapped, now)
		}
	}
}

// filesIn lists what is in a folder.
func filesIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		list = append(list, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
