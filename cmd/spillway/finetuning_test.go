package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/chat"
	"spillway/data"
	"spillway/recipe"
)

// The page on fine-tuning says what is so: its commands parse, its lines are read and
// its recipe is one.
func TestFineTuningPage(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "finetuning.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```(\\w*)\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
	seen := map[string]int{}
	for _, b := range blocks {
		seen[b[1]]++
		switch kind, text := b[1], b[2]; kind {
		case "":
			parseCommands(t, text)
		case "jsonl":
			template := func() (*chat.Template, error) { return chat.Parse("t", plainTemplate) }
			r, err := data.OpenJSONL(write(t, "lines.jsonl", text), data.JSONLOptions{Template: template})
			if err != nil {
				t.Errorf("%s%v", text, err)
				continue
			}
			if r.Len() != int64(strings.Count(text, "\n")) {
				t.Errorf("%d records of\n%s", r.Len(), text)
			}
			r.Close()
		case "yaml":
			r, err := recipe.Read(write(t, "page.yaml", text))
			given := 0
			r.Flags().Visit(func(*flag.Flag) { given++ })
			if err != nil || given != strings.Count(text, "\n") {
				t.Errorf("%d settings, %v of\n%s", given, err, text)
			}
		}
	}
	if seen[""] != 3 || seen["jsonl"] != 4 || seen["yaml"] != 1 {
		t.Errorf("the page has %v", seen)
	}
	for _, flag := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(string(raw), -1) {
		if newTrain(shell{}).Flags().Lookup(flag[1]) == nil {
			t.Errorf("there is no flag --%s", flag[1])
		}
	}
}

func parseCommands(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		args := strings.Fields(strings.TrimPrefix(line, "$ spillway train "))
		cmd := newTrain(shell{})
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("%s%v", line, err)
		} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("%s%v", line, err)
		}
	}
}
