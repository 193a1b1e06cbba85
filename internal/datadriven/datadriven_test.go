package datadriven

import (
	"strings"
	"testing"
)

const file = `# Two cases.
add a=1 b=2 loud
----
3

say
one
two
----
ONE
TWO
`

func TestParse(t *testing.T) {
	cases, rest, err := Parse("f", file)
	if err != nil || len(cases) != 2 || rest != "" {
		t.Fatalf("%d cases, rest %q, %v", len(cases), rest, err)
	}
	first, second := cases[0], cases[1]
	if first.Command != "add" || first.Line != 2 || len(first.Args) != 3 || first.Args[1] != (Arg{"b", "2"}) || first.Args[2] != (Arg{"loud", ""}) || first.Want != "3\n" {
		t.Errorf("%+v", first)
	}
	if second.Input != "one\ntwo\n" || second.Want != "ONE\nTWO\n" {
		t.Errorf("%+v", second)
	}
	whole := ""
	for _, c := range cases {
		whole += c.head + c.Want
	}
	if whole != file {
		t.Errorf("writing it again gives %q", whole)
	}
	if _, _, err := Parse("f", "add\n"); err == nil || !strings.Contains(err.Error(), "f:1") {
		t.Errorf("a case without a result: %v", err)
	}
}

func TestDiff(t *testing.T) {
	if got := Diff("a\nb\nc\n", "a\nx\nc\n"); got != "- b\n+ x\n" {
		t.Errorf("%q", got)
	}
}
