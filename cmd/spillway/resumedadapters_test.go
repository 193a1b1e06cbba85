package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What adapters mean depends on their settings: a run that goes on with another alpha, or with fewer layers, would
// go on as another model. It is refused with both values.
func TestResumedAdaptersKeepTheirSettings(t *testing.T) {
	model, out := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "out")
	works(t, "init", "tiny-llama", "--out", model)
	start := []string{"train", model, "--method", "lora", "--lora-rank", "4", "--lora-dropout", "0.1", "--data", prose(t), "--tokenizer", "bytes", "--seq-len", "32", "--out", out, "--max-steps", "1"}
	if r := command(t, start...); r.code != exitOK {
		t.Fatal(r.err)
	}
	resume := []string{"train", "--resume", "--out", out, "--max-steps", "2"}
	refusals := func() {
		t.Helper()
		for setting, want := range map[string]string{
			"--lora-alpha 64": "(--lora-alpha): 8 in that run, 64 now", "--lora-rank 8": "(--lora-rank): 4 in that run, 8 now", "--use-rslora": "(--use-rslora): false in that run, true now",
			"--target-modules q_proj": "(--target-modules):", "--rank-pattern q_proj=2": "adapter.rank_pattern.q_proj: none in that run, 2 now",
		} {
			r := command(t, append(resume, append(strings.Fields(setting), "--allow-changes")...)...)
			if r.code != exitFailed || !strings.Contains(r.err, want) || !strings.Contains(r.err, "cannot change within a run") {
				t.Errorf("%s: code %d, %s", setting, r.code, r.err)
			}
		}
		if r := command(t, append(resume, "--lora-dropout", "0.2")...); r.code != exitFailed || !strings.Contains(r.err, "(--lora-dropout): 0.1 in that run, 0.2 now") {
			t.Errorf("another dropout: code %d, %s", r.code, r.err)
		}
	}
	refusals()
	state := filepath.Join(out, "step-00000001", "trainer.json")
	var old map[string]any
	text, err := os.ReadFile(state)
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil || old["adapter"] == nil {
		t.Fatalf("%s, %v", text, err)
	}
	if r := command(t, append(resume, "--method", "qlora")...); r.code != exitFailed || !strings.Contains(r.err, "none in that run, nf4 now") {
		t.Errorf("quantized in the middle: code %d, %s", r.code, r.err)
	}
	if r := command(t, append(resume, "--lora-dropout", "0.2", "--allow-changes")...); r.code != exitOK {
		t.Errorf("another dropout, allowed: %s", r.err)
	}
	if r := command(t, append(resume, "--max-steps", "3", "--lora-dropout", "0.2")...); r.code != exitOK {
		t.Errorf("the same settings: %s", r.err)
	}
}

// A folder that is no run is not continued, and what is missing is said.
func TestResumingNothing(t *testing.T) {
	r := command(t, "train", "--resume", "--out", filepath.Join(t.TempDir(), "nothing"))
	if r.code != exitUsage || !strings.Contains(r.err, "there is no run in ") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
}

// A run that its patience ended says what lets it go on, not epochs that are left anyway.
func TestEarlyStopsSayWhatLetsThemGoOn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"train", "tiny-llama", "--data", prose(t), "--tokenizer", "bytes", "--seq-len", "32", "--eval-data", prose(t), "--eval-steps", "1", "--patience", "1", "--learning-rate", "0", "--max-steps", "20", "--out", out}
	if r := command(t, args...); r.code != exitOK || !strings.Contains(r.out, "stopped early") {
		t.Fatal(r.code, r.out, r.err)
	}
	if r := command(t, append(args, "--resume")...); r.code != exitOK || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "give more --patience, or --patience 0 to go on") {
		t.Errorf("code %d, %s%s", r.code, r.out, r.err)
	}
}
