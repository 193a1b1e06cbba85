package lint

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	pagePath = regexp.MustCompile("`([a-z][a-zA-Z0-9_]*(?:/[a-zA-Z0-9_.-]+)*/?)(?::[0-9]+)?`")
	pageTest = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*)")
)

// Pages name files, folders and tests that exist: those that moved are found here.
func TestPagesNameWhatExists(t *testing.T) {
	wrong := t.Logf
	if strict {
		wrong = t.Errorf
	}
	var pages []string
	tests := map[string]bool{}
	for _, file := range wordFiles(t) {
		switch {
		case path.Ext(file) == ".md" && file != "CHANGELOG.md":
			pages = append(pages, file)
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range regexp.MustCompile(`func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllStringSubmatch(read(t, file), -1) {
				tests[m[1]] = true
			}
		}
	}
	for _, page := range pages {
		text := read(t, page)
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(m[1], "://") && !exists(path.Join(path.Dir(page), m[1])) {
				wrong("%s links to %s, which is not there", page, m[1])
			}
		}
		for _, m := range pagePath.FindAllStringSubmatch(text, -1) {
			isPath := strings.Contains(m[1], "/") || path.Ext(m[1]) == ".go" || path.Ext(m[1]) == ".md"
			first, _, _ := strings.Cut(m[1], "/")
			if isPath && exists(first) && !exists(m[1]) && !exists(path.Join(path.Dir(page), m[1])) {
				wrong("%s names %s, which is not there", page, m[1])
			}
		}
		for _, m := range pageTest.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				wrong("%s names %s, which is no test", page, m[1])
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func exists(file string) bool {
	_, err := os.Stat("../../" + file)
	return err == nil
}
