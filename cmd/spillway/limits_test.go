package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Where a limit is too small, generate and eval name one that is enough, of both models where one guesses.
func TestRefusedLimitsHaveOnesThatFit(t *testing.T) {
	sandbox(t)
	model := wideModel(t)
	use := []string{model, "--tokenizer", "bytes", "--device", "cpu", "--dtype", "f32"}
	text := append([]string{"generate", "--prompt", "line", "--max-new-tokens", "60", "--ignore-eos", "--quiet"}, use...)
	data := append([]string{"eval", "--data", "book.txt", "--seq-len", "32"}, use...)
	fits := regexp.MustCompile(`to make it fit: (--max-(?:host-)?memory) ([0-9]+MiB)`)
	for _, c := range []struct {
		args  []string
		flags string
	}{
		{text, "--max-memory 100KiB"},
		{text, "--max-host-memory 100KiB"},
		{text, "--max-memory 3MiB --max-host-memory 100KiB"},
		{text, "--max-memory 2MiB --draft self"},
		{data, "--max-memory 100KiB"},
	} {
		flags := strings.Fields(c.flags)
		r := command(t, append(slices.Clone(c.args), flags...)...)
		said := fits.FindStringSubmatch(r.err)
		if r.code == exitOK || said == nil {
			t.Errorf("%s: %d %s", c.flags, r.code, r.err)
			continue
		}
		flags[slices.Index(flags, said[1])+1] = said[2]
		if r := command(t, append(slices.Clone(c.args), flags...)...); r.code != exitOK {
			t.Errorf("%s, which was said to be enough instead of %s: %d %s", flags, c.flags, r.code, r.err)
		}
	}
}
