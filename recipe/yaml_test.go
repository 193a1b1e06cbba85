package recipe

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/internal/bounded"
)

// known are settings as a recipe has them.
var known = func() (list []*flag.Flag) {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.Var(&List{}, "data", "files")
	for _, k := range [][3]string{{"model", "what to train", ""}, {"lr", "the rate", "1e-4"}, {"eval-every", "iterations", "0"}, {"resume", "go on", "false"}, {"schedule", "of the rate", "constant"}} {
		fs.String(k[0], k[2], k[1])
	}
	fs.VisitAll(func(f *flag.Flag) { list = append(list, f) })
	return list
}()

func TestRead(t *testing.T) {
	text := `# a recipe
model: "./my model"   # with a space
data:
  - a.jsonl
  - 'b: c.jsonl'
lr: 2e-4
eval_every: 010

resume: true
schedule: cosine:floor=0.1
`
	r, err := parse("r.yaml", []byte(text), known)
	if err != nil {
		t.Fatal(err)
	}
	want := []setting{
		{"model", []string{"./my model"}, 2, 1}, {"data", []string{"a.jsonl", "b: c.jsonl"}, 3, 1}, {"lr", []string{"2e-4"}, 6, 1},
		{"eval-every", []string{"010"}, 7, 1}, {"resume", []string{"true"}, 9, 1}, {"schedule", []string{"cosine:floor=0.1"}, 10, 1},
	}
	if !reflect.DeepEqual(r.settings, want) {
		t.Errorf("%+v", r.settings)
	}
	for _, empty := range []string{"", "# nothing\n", "\n\n"} {
		if r, err := parse("r", []byte(empty), known); err != nil || len(r.settings) != 0 {
			t.Errorf("%q: %+v, %v", empty, r, err)
		}
	}
	if r, err := parse("r", []byte("data: one.txt"), known); err != nil || !slices.Equal(r.settings[0].values, []string{"one.txt"}) {
		t.Errorf("a list of one: %+v, %v", r, err)
	}
}

func TestBadRecipes(t *testing.T) {
	for text, want := range map[string]string{
		"model: x\nlearning: 1\n":             `r.yaml:2:1: there is no setting "learning"`,
		"model: x\n\neval-evry: 1\n":          `r.yaml:3:1: there is no setting "eval-evry"; did you mean eval-every?`,
		"modle: x":                            "did you mean model?",
		"lr: 1\nlr: 2\n":                      "r.yaml:2:1: ",
		"lr: 1\neval-every: 2\neval_every: 3": "r.yaml:3:1: eval-every is set a second time, first in line 2",
		"lr: [1, 2]":                          "r.yaml:1:1: lr has 2 values, it takes one",
		"lr:\nmodel: x":                       "r.yaml:1:", // no value
		"lr: {a: 1}":                          "r.yaml:1:5: lr takes a value or a list of values, this is mapping",
		"data: [[a]]":                         "data takes a value or a list of values",
		"- a\n- b":                            "a recipe is lines of the form name: value",
		"just words":                          "a recipe is lines of the form name: value",
		"lr: 1\n---\nlr: 2":                   "a second document",
		"lr: &a 1\nmodel: *a":                 "lr takes a value",
		"model: [a":                           "r.yaml:1:",
		"lr: 1\n model: x\n":                  "r.yaml:1:5: ",
		"\tlr: 1":                             "r.yaml:1:",
		strings.Repeat("#", maxFile+1):        "at most",
	} {
		if r, err := parse("r.yaml", []byte(text), known); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %+v, %v; want %q", text, r, err, want)
		}
	}
}

// What is written is read back, whatever the values are.
func TestWrittenRecipesAreparse(t *testing.T) {
	set := map[string][]string{"model": {"-x: #1 'a' \"b\"\\n é"}, "data": {"", "true", "null", "1e5", "- a", "~", "a\nb", "*x", "&y", "{z}", " spaced "}, "lr": {"2e-4"}}
	var b strings.Builder
	if err := write(&b, known, set); err != nil {
		t.Fatal(err)
	}
	r, err := parse("r", []byte(b.String()), known)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if len(r.settings) != len(set) {
		t.Errorf("%d settings of %d", len(r.settings), len(set))
	}
	for _, s := range r.settings {
		if !slices.Equal(s.values, set[s.name]) {
			t.Errorf("%s is %q, was %q\n%s", s.name, s.values, set[s.name], b.String())
		}
	}
	if !strings.Contains(b.String(), "# eval-every: 0  # iterations\n") || !strings.Contains(b.String(), "lr: 2e-4  # the rate\n") {
		t.Errorf("%s", b.String())
	}
	if err := write(&b, known, map[string][]string{"modl": {"x"}}); err == nil || !strings.Contains(err.Error(), "did you mean model") {
		t.Errorf("an unknown setting: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"model: x\ndata: [a, b]\n", "lr: 1e-4 # c\n", "a: &b c\nd: *b", "- x", "\"model\": |\n  text\n", "? a\n: b", "lr: !!int 3"} {
		f.Add(s)
	}
	var all strings.Builder
	if err := New().Write(&all); err != nil {
		f.Fatal(err)
	}
	f.Add(strings.ReplaceAll(all.String(), "# ", "")) // every setting with its default
	f.Add("model: m\nmethod: qlora\ndata: [a.jsonl=2, b.csv]\nmax-steps: 10\nlr: 2e-4\nscheduler: cosine:floor=0.1\nrank-pattern: q_proj=4\nmax-memory: 4GiB\n")
	f.Fuzz(func(t *testing.T, text string) {
		bounded.Check(t, len(text), func() { readAll(t, text) })
	})
}

// readAll reads a recipe, checks it, and reads again what is written of it.
func readAll(t *testing.T, text string) {
	d, err := parse("r", []byte(text), known)
	if err == nil {
		for _, s := range d.settings {
			if s.line < 1 || len(s.values) == 0 && s.name != "data" {
				t.Errorf("%+v", s)
			}
		}
	}
	r := New()
	if err := r.read("r", []byte(text)); err != nil {
		return
	}
	_ = r.Check() // an error is an answer
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	again := New()
	if err := again.read("r", []byte(b.String())); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	var second strings.Builder
	if err := again.Write(&second); err != nil || second.String() != b.String() {
		t.Fatalf("%v\n%s\nbecame\n%s", err, b.String(), second.String())
	}
}

// A preset stays a preset where the folder of its run has the same name.
func TestRunFolderIsNotTheModel(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("tiny-llama", 0o755); err != nil {
		t.Fatal(err)
	}
	r := New()
	if err := r.Flags().Set(ModelKey, "tiny-llama"); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteRun("tiny-llama"); err != nil {
		t.Fatal(err)
	}
	again := New()
	if err := again.Read("tiny-llama/" + RunName); err != nil || again.Model != "tiny-llama" {
		t.Errorf("%v: the model is %q", err, again.Model)
	}
}

// Recipes of other programs are read to the end: every line says what it is called here.
func TestRecipesOfOtherPrograms(t *testing.T) {
	r := New()
	err := r.read("r.yaml", []byte("base_model: ./llama\nsequence_len: 64\nlearning_rate: 1e-4\nload_in_4bit: true\nneftune_noise_alpha: 5\n"))
	if err == nil {
		t.Fatal("it was read")
	}
	for _, want := range []string{"r.yaml:1:1: there is no setting \"base-model\"; did you mean model?", "r.yaml:2:1:", "did you mean seq-len?", "r.yaml:4:1:", "did you mean method: qlora?", "r.yaml:5:1:", "no noise"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
	}
	for theirs, ours := range TheirNames {
		first, _, _ := strings.Cut(ours, " ")
		if r.flags.Lookup(first) == nil || Aliases[first] != "" {
			t.Errorf("%s is %s, which is no setting", theirs, ours)
		}
		if r.flags.Lookup(theirs) != nil {
			t.Errorf("%s is a setting of ours", theirs)
		}
	}
	for theirs := range Without {
		if r.flags.Lookup(theirs) != nil || TheirNames[theirs] != "" {
			t.Errorf("%s is a setting", theirs)
		}
	}
	if err := New().read("r.yaml", []byte("lr: 1e-4\nlearning_rate: 2e-4\n")); err == nil || !strings.Contains(err.Error(), "second time") {
		t.Errorf("one setting under two names: %v", err)
	}
}
