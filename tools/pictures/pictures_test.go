package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pictures of the pages are those of the code.
func TestPicturesAreUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	for name, draw := range pictures {
		want, err := draw(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the code is now: go run ./tools/pictures draws it again", name)
		}
		wellFormed(t, name, want)
	}
}

func wellFormed(t *testing.T, name, text string) {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// No package covers another, and each stands above what it imports.
func TestPackagesStandAboveTheirImports(t *testing.T) {
	edges := map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": nil, "d": nil, "e": {"d"}}
	rows := layers(reduced(edges))
	arrange(rows, 400)
	for _, row := range rows {
		for i, n := range row {
			if i > 0 && row[i-1].x+row[i-1].width/2 > n.x-n.width/2 {
				t.Errorf("%q covers %q", row[i-1].name, n.name)
			}
			for _, m := range n.down {
				if m.row <= n.row {
					t.Errorf("%q is not above %q", n.name, m.name)
				}
			}
		}
	}
}
