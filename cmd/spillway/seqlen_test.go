package main

import (
	"slices"
	"strings"
	"testing"
)

// Sequences longer than a model was made for are said to be: where positions are angles it can still be
// trained and evaluated, where they are learned there are no others.
func TestSequencesBeyondTheModel(t *testing.T) {
	sandbox(t)
	model := wideModel(t)
	for _, args := range [][]string{
		{"train", model, "--data", "book.txt", "--max-steps", "1", "--out", "run"},
		{"eval", model, "--data", "book.txt"},
		{"plan", model, "--task", "train"},
	} {
		if args[0] != "plan" {
			args = append(args, "--device", "cpu", "--tokenizer", "bytes")
		}
		for length, said := range map[string]bool{"1024": true, "512": false} {
			if args[0] == "train" {
				args[slices.Index(args, "--out")+1] = "run" + length
			}
			r := command(t, append(args, "--seq-len", length)...)
			if r.code != exitOK || strings.Contains(strings.Join(strings.Fields(r.out+r.err), " "), "sequences have 1024 positions (--seq-len), wide was made for 512") != said {
				t.Errorf("%s --seq-len %s: %d\n%s\n%s", args[0], length, r.code, r.out, r.err)
			}
		}
	}
	// A chunk of generation may have more rows than a sequence has positions: they are of several sequences.
	if r := command(t, "plan", model, "--task", "generate", "--context", "512", "--streams", "4", "--chunk", "1024", "--machine", "cpu:1GiB"); r.code != exitOK || strings.Contains(r.out, "--seq-len") {
		t.Errorf("generating: %d\n%s\n%s", r.code, r.out, r.err)
	}
	if r := command(t, "train", "tiny-gpt2", "--data", "book.txt", "--device", "cpu", "--tokenizer", "bytes", "--max-steps", "1", "--out", "other", "--seq-len", "4096"); r.code == exitOK ||
		!strings.Contains(r.err, "sequences have 4096 positions, the model has learned") {
		t.Errorf("learned positions: %d %s", r.code, r.err)
	}
}
