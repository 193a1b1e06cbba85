// Package datadriven runs tests that are written as text files, so that a review sees
// in a diff how behaviour changes.
//
// A file is a list of cases with empty lines between them. A case is a command with
// arguments, more lines of input if it needs them, a line of four dashes, and what the
// command gave:
//
//	# A comment.
//	plan llama-3-8b machine=rtx4090 task=lora
//	----
//	strategy: standard
//
// Run with -rewrite, tests write what they get into the files instead of comparing:
//
//	go test . -run TestPlans -rewrite && git diff
package datadriven

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what tests get to their files in testdata instead of comparing")

// A Case is one command of a file and what it should give.
type Case struct {
	File    string
	Line    int // of the command, from 1
	Command string
	Args    []Arg
	Input   string // the lines between the command and the dashes
	Want    string
	head    string // everything before the result, as it stands in the file
}

// Arg is an argument: "task=lora", or a word, which has no value.
type Arg struct{ Name, Value string }

// Run runs every case of the files that match a pattern as a test of its own.
// do returns what a case gives; a case that cannot be run is an error of the test.
func Run(t *testing.T, pattern string, do func(t *testing.T, c Case) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) { runFile(t, file, do) })
	}
}

func runFile(t *testing.T, file string, do func(t *testing.T, c Case) string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cases, rest, err := Parse(file, string(raw))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range cases {
		got := strings.TrimRight(do(t, c), "\n")
		if got != "" {
			got += "\n"
		}
		b.WriteString(c.head + got)
		if got != c.Want && !*rewrite {
			t.Errorf("%s:%d: %s\n%s\nif this is right, run again with -rewrite and look at the diff", file, c.Line, c.Command, Diff(c.Want, got))
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const dashes = "----"

// Parse takes a file apart. rest is what follows the last case.
func Parse(file, text string) (cases []Case, rest string, err error) {
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); {
		c := Case{File: file}
		for ; i < len(lines) && (strings.TrimSpace(lines[i]) == "" || strings.HasPrefix(lines[i], "#")); i++ {
			c.head += lines[i]
		}
		if i == len(lines) {
			return cases, c.head, nil
		}
		c.Line = i + 1
		c.Command, c.Args = command(lines[i])
		for c.head, i = c.head+lines[i], i+1; ; i++ {
			if i == len(lines) {
				return nil, "", fmt.Errorf("%s:%d: the case has no line %s", file, c.Line, dashes)
			}
			c.head += lines[i]
			if strings.TrimSpace(lines[i]) == dashes {
				break
			}
			c.Input += lines[i]
		}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != ""; i++ {
			c.Want += lines[i]
		}
		cases = append(cases, c)
	}
	return cases, "", nil
}

func command(line string) (name string, args []Arg) {
	words := strings.Fields(line)
	for _, w := range words[1:] {
		n, v, _ := strings.Cut(w, "=")
		args = append(args, Arg{n, v})
	}
	return words[0], args
}

// Diff shows which lines are wanted and missing, and which are there instead. Lines
// in common at the start and end are left out.
func Diff(want, got string) string {
	a, b := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var s strings.Builder
	for _, l := range a {
		s.WriteString("- " + strings.TrimRight(l, "\n") + "\n")
	}
	for _, l := range b {
		s.WriteString("+ " + strings.TrimRight(l, "\n") + "\n")
	}
	return s.String()
}
