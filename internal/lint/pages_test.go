package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
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
			if isPath && !strings.Contains(m[1], "NAME") && exists(first) && !exists(m[1]) && !exists(path.Join(path.Dir(page), m[1])) {
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

var pageName = regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Z][A-Za-z0-9]*)(?:\\.([A-Z][A-Za-z0-9]*))?")

// Names of the code in pages ("planner.Make", "plan.Plan.Lives") exist.
func TestPagesNameExportedCode(t *testing.T) {
	wrong := t.Logf
	if strict {
		wrong = t.Errorf
	}
	known := exported(t)
	for _, page := range wordFiles(t) {
		if path.Ext(page) != ".md" || page == "CHANGELOG.md" {
			continue
		}
		for _, m := range pageName.FindAllStringSubmatch(read(t, page), -1) {
			names, ours := known[m[1]]
			if !ours {
				continue
			}
			for _, name := range m[2:] {
				if name != "" && !names[name] {
					wrong("%s names %s.%s, and %s has no %s", page, m[1], strings.Join(m[2:], "."), m[1], name)
				}
			}
		}
	}
}

// exported are the exported names of every package, those of methods and fields too.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, file := range wordFiles(t) {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), "../../"+file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names := all[f.Name.Name]
		if names == nil {
			names = map[string]bool{}
			all[f.Name.Name] = names
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = true
				return false
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, id := range n.Names {
					names[id.Name] = true
				}
			case *ast.Field:
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
			return true
		})
	}
	return all
}

// ARCHITECTURE lists every package that programs are made of.
func TestArchitectureListsPackages(t *testing.T) {
	wrong := t.Logf
	if strict {
		wrong = t.Errorf
	}
	text := read(t, "ARCHITECTURE.md")
	for pkg := range imports(t) {
		first, _, _ := strings.Cut(pkg, "/")
		if slices.Contains([]string{"internal", "examples", "tools"}, first) || strings.HasSuffix(pkg, "test") {
			continue
		}
		if !strings.Contains(text, "`"+strings.TrimPrefix(pkg, "./")+"`") {
			wrong("ARCHITECTURE.md does not list %s", pkg)
		}
	}
}

// Every package says what it is for, in a comment before its clause.
func TestPackagesHaveComments(t *testing.T) {
	said := map[string]bool{}
	for _, file := range wordFiles(t) {
		if path.Ext(file) != ".go" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), "../../"+file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(file)
		said[dir] = said[dir] || f.Doc != nil
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s has no package comment: say in one sentence what it is for", dir)
		}
	}
}
