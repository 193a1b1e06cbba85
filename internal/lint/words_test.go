package lint

import (
	"cmp"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// strict makes what the tests of words and pages find an error; without it they only
// report, which helps while much is renamed.
const strict = true

var listWords = flag.String("words", "", "list the places of private words in this package (\"planner\", \"docs\") or in all (\"all\")")

// A privateWord is one of ours for which the field has its own.
type privateWord struct {
	pattern string // a regular expression, applied to lower-case words
	better  string
}

// privateWords must not come back, in identifiers, comments, texts or pages.
var privateWords = []privateWord{
	{`foretold|foretells?|foretelling`, "forecast, predicted"},
	{`noted`, "captured"},
	{`hand(ed|s|ing) over`, "launched"},
	{`cards?`, "GPU"},
	{`processors?`, "CPU"},
	{`products`, "matmuls, linear layers"},
	{`coded products?`, "quantized matmul"},
	{`lasting`, "sustained"},
	{`of a moment`, "burst"},
	{`wishes|wished`, "constraints"},
	{`insist(s|ed|ing)?( on)?`, "constraints, require"},
	{`glances?`, "estimate"},
	{`vicinity`, "neighbours"},
	{`leanest|leaner|lean`, "smallest"},
	{`ladders?|rungs?`, "savings"},
	{`spill(s|ed|ing)`, "activation offload"},
	{`hosted`, "on the CPU"},
	{`duplex`, "bidirectional"},
	{`sights?`, "mask"},
	{`trails?`, "carries over"},
	{`few(er)? bits`, "quantized"},
	{`fresh weights`, "random initial weights"},
	{`published shapes?`, "preset"},
	{`peers`, "baselines"},
	{`learned tokens|learn prompts`, "tokens in the loss, train on prompts"},
	{`held[ -]out loss`, "eval loss"},
	{`trainings`, "training runs"},
	{`a training(?: (?:that|is|of|takes|from|by|on|with|and|or|in|to|which|was|has|can|may)\b|$)`, "a training run"},
	{`sittings?`, "measurement run"},
	{`whole numbers?`, "integers"},
	{`(are|is) no numbers?`, "NaN"},
	{`beside`, "next to, in addition to, compared with"},
	{`rests (in|on|at)`, "is stored"},
	{`sharded state|sharded data`, "ZeRO-1, ZeRO-3"},
	{`of the bound`, "of roofline"},
	{`told`, "reported"},
	{`keepers?`, "journal, cache, saved"},
}

// otherMeanings are uses that mean something else, by the path of a file ("" for all) and
// the words around.
var otherMeanings = []struct{ file, words string }{
	{"internal/lint/words_test.go", ""},
	{"", "dot products"}, {"", "products and sums"}, {"", "sum of products"}, {"", "products in f32"}, {"", "some products"}, {"", "products of three"}, // arithmetic
	{"recipe/yaml_test.go", "kitten"},
	{"", "told apart"}, {"", "told to"}, {"", "told otherwise"},
	{"", "half duplex"}, {"", "full duplex"}, {"", "half-duplex"}, // what everybody calls such links
	{"machine/machine.go", "peers"}, {"machine/describe.go", "peers"}, {"machine/parse_test.go", "peers"}, {"machine/peer.go", "peers"}, {"planner/goal/site.go", "peers"}, {"cmd/spillway/plantext.go", "peers"}, {"docs/json.md", "peers"}, // GPUs with a direct link
	{"rig/host_test.go", "xeon(r) processor"},
	{"tokenizer/tokenizer.go", "post"}, {"tokenizer/postprocess.go", "processor"}, {"gguf/vocabulary.go", "processor"}, {"gguf/tokenizer.go", "post_processor"}, // a stage of tokenizer.json
}

// compiled are the private words as one expression each, at the borders of words.
var compiled = func() []*regexp.Regexp {
	list := make([]*regexp.Regexp, len(privateWords))
	for i, w := range privateWords {
		list[i] = regexp.MustCompile(`\b(?:` + w.pattern + `)\b`)
	}
	return list
}()

// anyWord is quick to say that a line has none of them.
var anyWord = func() *regexp.Regexp {
	patterns := make([]string, len(privateWords))
	for i, w := range privateWords {
		patterns[i] = w.pattern
	}
	return regexp.MustCompile(`\b(?:` + strings.Join(patterns, "|") + `)\b`)
}()

// use is one place of a private word.
type use struct {
	file string
	line int
	word int // in privateWords
	text string
}

// split turns an identifier into lower-case words: HandedOver is "handed over".
func split(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, c := range runes {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if i > 0 && unicode.IsUpper(c) && (unicode.IsLower(runes[i-1]) || next) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return strings.ReplaceAll(b.String(), "_", " ")
}

// usesIn finds private words in a text that begins at a line.
func usesIn(file string, line int, text string) []use {
	var list []use
	for n, s := range strings.Split(text, "\n") {
		lower := strings.ToLower(s)
		if !anyWord.MatchString(lower) {
			continue
		}
		for i, e := range compiled {
			for _, at := range e.FindAllStringIndex(lower, -1) {
				if !isAllowed(file, lower) {
					list = append(list, use{file, line + n, i, strings.TrimSpace(around(s, at[0], at[1]))})
				}
			}
		}
	}
	return list
}

func around(s string, from, to int) string {
	return s[max(0, from-40):min(len(s), to+40)]
}

func isAllowed(file, lower string) bool {
	for _, a := range otherMeanings {
		if (a.file == "" || a.file == file) && strings.Contains(lower, a.words) {
			return true
		}
	}
	return false
}

// usesInGo looks at identifiers, comments and texts.
func usesInGo(file string, source []byte) []use {
	var list []use
	var s scanner.Scanner
	set := token.NewFileSet()
	f := set.AddFile(file, -1, len(source))
	s.Init(f, source, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return list
		case token.IDENT:
			list = append(list, usesIn(file, set.Position(pos).Line, split(text))...)
		case token.COMMENT, token.STRING:
			list = append(list, usesIn(file, set.Position(pos).Line, text)...)
		}
	}
}

// wordFiles are the files whose words count: Go, pages, and what users read.
func wordFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "build" || len(name) > 1 && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case slices.Contains([]string{".go", ".md", ".cu", ".s"}, path.Ext(name)) || name == "Makefile":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Words of PyTorch, CUDA and Hugging Face stand where the field has one; ours do not
// come back. Run it with -v for counts, with -words PACKAGE for places.
func TestWords(t *testing.T) {
	counts := map[string]int{}
	byWord := make([]int, len(privateWords))
	var list []use
	for _, file := range wordFiles(t) {
		source, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if path.Ext(file) == ".go" {
			list = append(list, usesInGo(file, source)...)
		} else {
			list = append(list, usesIn(file, 1, string(source))...)
		}
	}
	for _, u := range list {
		dir := path.Dir(u.file)
		counts[dir]++
		byWord[u.word]++
		switch {
		case strict:
			t.Errorf("%s:%d: %q: say %s", u.file, u.line, u.text, privateWords[u.word].better)
		case *listWords == "all" || *listWords == dir:
			t.Logf("%s:%d: %q: say %s", u.file, u.line, u.text, privateWords[u.word].better)
		}
	}
	t.Logf("%d uses of private words", len(list))
	for _, dir := range byCount(counts) {
		t.Logf("%5d  %s", counts[dir], dir)
	}
	words := map[string]int{}
	for i, n := range byWord {
		if n > 0 {
			words[fmt.Sprintf("%s -> %s", privateWords[i].pattern, privateWords[i].better)] = n
		}
	}
	for _, w := range byCount(words) {
		t.Logf("%5d  %s", words[w], w)
	}
}

// byCount are the keys, the most frequent first.
func byCount(counts map[string]int) []string {
	var keys []string
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	return keys
}
