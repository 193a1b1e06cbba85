package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/eventlog"
	"spillway/internal/reference"
	"spillway/units"
)

// A model that fits in neither device nor host memory is read from its own files: the text is the same,
// and nothing stays in the folder. Without a folder that is refused, and the folder is named as the way out.
func TestGenerateFromDisk(t *testing.T) {
	dir, disk := reference.Asset(t, "stories260k"), filepath.Join(t.TempDir(), "disk")
	args := []string{"generate", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--max-new-tokens", "30", "--prompt", "Once upon a time"}
	want := generatedObject(t, args...)
	small := append(slices.Clone(args), "--max-memory", "700KiB", "--max-host-memory", "900KiB")
	if v := generatedObject(t, append(slices.Clone(small), "--disk", disk)...); v.Text != want.Text || v.Measured > 700<<10 {
		t.Errorf("from disk the text is %q in %d bytes, want %q", v.Text, v.Measured, want.Text)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if r := command(t, small...); r.code == exitOK || !strings.Contains(r.err, "--disk DIR") {
		t.Errorf("without a disk: %d, %s", r.code, r.err)
	}
}

// A folder for what does not fit is checked before it is needed, and one that was not needed is said.
func TestGenerateChecksTheDisk(t *testing.T) {
	dir, blocked := reference.Asset(t, "stories260k"), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--max-new-tokens", "2", "--prompt", "Once", "--disk"}
	for _, disk := range []string{filepath.Join(blocked, "disk"), "/proc/disk"} {
		if r := command(t, append(slices.Clone(args), disk)...); r.code == exitOK || !strings.Contains(r.err, disk) {
			t.Errorf("--disk %s: %d, %s", disk, r.code, r.err)
		}
	}
	if r := command(t, append(args, t.TempDir())...); r.code != exitOK || !strings.Contains(r.err, "fits in memory") {
		t.Errorf("a disk that is not needed: %d, %s", r.code, r.err)
	}
}

// A drafter that there is not is refused with those that need no other model.
func TestDraftersAreNamed(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	r := command(t, "generate", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--prompt", "Once", "--draft", "nosuch")
	if r.code == exitOK || !strings.Contains(r.err, "ngram") || !strings.Contains(r.err, "self") {
		t.Errorf("%d, %s", r.code, r.err)
	}
}

// Guessing changes no text, whoever guesses, also within a limit that both models share and for many
// prompts at once; what was guessed is said.
func TestDraftsChangeNoText(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	args := []string{"generate", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--max-new-tokens", "60",
		"--prompt", "Once upon a time, there was a little girl named Lily. She loved to play outside. Once upon a time"}
	for _, sampling := range [][]string{nil, {"--temperature", "0.7", "--seed", "3"}} {
		args := slices.Concat(args, sampling)
		want := generatedObject(t, args...)
		guessed := 0
		for _, draft := range [][]string{{"ngram"}, {"ngram", "--max-memory", "1MiB"}, {"self", "--max-memory", "1500KiB"}, {dir, "--draft-tokens", "3"}, {dir, "--draft-branches", "1"}, {"ngram", "--draft-tokens", "2", "--draft-branches", "16"}} {
			v := generatedObject(t, append(append(slices.Clone(args), "--draft"), draft...)...)
			if v.Text != want.Text || !slices.Equal(v.Tokens, want.Tokens) {
				t.Errorf("--draft %s: %q, want %q", draft, v.Text, want.Text)
			}
			if guessed += v.Guessed; v.Accepted > v.Guessed || v.Guessed > 0 && (v.PerStep < 1 || v.Branches < 1 || v.Branches > 16) || v.NewTokens != want.NewTokens {
				t.Errorf("--draft %s: %d of %d guesses were right, %.2f tokens a step", draft, v.Accepted, v.Guessed, v.PerStep)
			}
		}
		if guessed == 0 {
			t.Error("nothing was ever guessed")
		}
	}
	if r := command(t, append(args, "--draft", "ngram")...); !strings.Contains(r.err, "guessed ") {
		t.Errorf("the statistics are %s", r.err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--draft-tokens", "3"}, "no effect without --draft"},
		{[]string{"--draft", "ngram", "--num-beams", "2"}, "--draft has no effect with --num-beams"},
		{[]string{"--draft", "ngram", "--no-cache"}, "--no-cache"},
		{[]string{"--draft", ""}, "--draft is empty"},
		{[]string{"--draft", "ngram", "--draft-tokens", "65"}, "1 to 64"},
		{[]string{"--draft-branches", "3"}, "no effect without --draft"},
		{[]string{"--draft", "ngram", "--draft-branches", "17"}, "1 to 16"},
		{[]string{"--draft", "self", "--max-memory", "100KiB"}, "guess"},
		{[]string{"--draft", "nowhere"}, "the model that guesses"},
	} {
		if r := command(t, append(slices.Clone(args), c.args...)...); r.code == exitOK || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %d, %s, want %q", c.args, r.code, r.err, c.says)
		}
	}
}

// Answers are those without guesses, turn by turn of a conversation that goes on, greedy and sampled; the
// event log has every token of them.
func TestChatDraftsChangeNoAnswer(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	template := filepath.Join(t.TempDir(), "template.jinja")
	if err := os.WriteFile(template, []byte("{% for m in messages %}{{ m.content }} {% endfor %}"), 0o644); err != nil {
		t.Fatal(err)
	}
	const said = "Once upon a time, there was a little girl named Lily. Once upon a time\nThere was a little girl named\n/retry\n/clear\nLily and Tom\n"
	talk := func(args ...string) []turn {
		t.Helper()
		args = append([]string{"chat", dir, "--json", "--tokenizer", filepath.Join(dir, "tok512.bin"), "--chat-template", template, "--max-new-tokens", "40", "--device", "cpu"}, args...)
		return objects[turn](t, commandWith(t, said, args...))
	}
	for _, sampling := range [][]string{nil, {"--temperature", "0.5", "--seed", "3"}} {
		want := talk(sampling...)
		for _, draft := range [][]string{{"ngram"}, {"self", "--max-memory", "6MiB"}, {dir, "--draft-tokens", "20", "--context", "300"}} {
			out := filepath.Join(t.TempDir(), "run")
			got := talk(slices.Concat(sampling, []string{"--out", out, "--draft"}, draft)...)
			if len(got) != 4 || len(got) != len(want) {
				t.Fatalf("--draft %s: %d answers, want %d", draft, len(got), len(want))
			}
			right, fresh := 0, 0
			for i := range got {
				if got[i].Text != want[i].Text || got[i].NewTokens != want[i].NewTokens || got[i].PromptTokens != want[i].PromptTokens {
					t.Errorf("--draft %s, answer %d: %q, want %q", draft, i, got[i].Text, want[i].Text)
				}
				right, fresh = right+got[i].Accepted, fresh+got[i].NewTokens
			}
			if draft[0] == "ngram" && right == 0 { // for a model this small no model pays
				t.Errorf("--draft %s guessed nothing right", draft)
			}
			s, err := eventlog.Summarize(eventlog.PathOf(out))
			if err != nil || s.Generated == nil || int(s.Generated.TotalNew) != fresh {
				t.Errorf("--draft %s: the event log has %+v, want %d new tokens, %v", draft, s.Generated, fresh, err)
			}
		}
	}
	for _, c := range []struct{ args, says string }{
		{"--draft-tokens 3", "no effect without --draft"},
		{"--draft ngram --no-cache", "--no-cache"},
		{"--draft nowhere", "the model that guesses"},
	} {
		r := commandWith(t, "hi\n", append([]string{"chat", dir, "--tokenizer", filepath.Join(dir, "tok512.bin"), "--chat-template", template}, strings.Fields(c.args)...)...)
		if r.code == exitOK || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %d, %s, want %q", c.args, r.code, r.err, c.says)
		}
	}
}

// A limit on host memory is for both models: what is enough for one is not for both, and more is.
func TestDraftTakesItsShareOfHostMemory(t *testing.T) {
	args := []string{"generate", wideModel(t), "--tokenizer", "bytes", "--device", "cpu", "--dtype", "f32", "--prompt", "line", "--max-new-tokens", "60", "--ignore-eos", "--quiet"}
	alone := command(t, append(slices.Clone(args), "--max-host-memory", "5600KiB")...)
	if alone.code != exitOK {
		t.Fatal(alone.err)
	}
	if r := command(t, append(slices.Clone(args), "--max-host-memory", "5600KiB", "--draft", "self", "--draft-branches", "1")...); r.code == exitOK || !strings.Contains(r.err, "of host memory") {
		t.Errorf("both in memory for one: %d, %s", r.code, r.err)
	}
	// What it takes is what a plan of the model in 4 bits says, for 64 tokens and 7 guesses.
	v := command(t, "plan", args[1], "--task", "generate", "--context", "71", "--precision", "fp32", "--quantization", "nf4", "--device", "cpu", "--json").object(t)
	said := command(t, append(slices.Clone(args[:len(args)-1]), "--draft", "self", "--draft-branches", "1")...).err
	if want := fmt.Sprintf("of the model that guesses predicted %v, ", units.Bytes(at(t, v, "forecast.peak_bytes.device").(float64))); !strings.Contains(said, want) {
		t.Errorf("the statistics are %s, want %s", said, want)
	}
	if r := command(t, append(slices.Clone(args), "--max-host-memory", "10000KiB", "--draft", "self", "--draft-branches", "1")...); r.code != exitOK || r.out != alone.out {
		t.Errorf("both: %d, %q%s, want %q", r.code, r.out, r.err, alone.out)
	}
}
