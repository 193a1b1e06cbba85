// Package lint holds the rules of the code base that a compiler does not check,
// as tests. Do not change a rule to make a build pass: it is a statement of
// policy, with its reason next to it.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// never lists which packages must not depend, directly or through others, on
// which. A trailing "/..." covers everything below.
var never = []struct{ who, on, because string }{
	{"nn", "device/...", "models do not know hardware"},
	{"nn", "machine", "models do not know hardware"},
	{"nn", "plan", "models do not know where they run"},
	{"arch", "device/...", "models do not know hardware"},
	{"arch", "machine", "models do not know hardware"},
	{"arch", "plan", "models do not know where they run"},
	{"lora", "device/...", "adapters are parts of models"},
	{"quant", "tensorfile", "codecs know numbers; quant/stored knows files"},
	{"spec", "plan", "a model is complete before anything is planned"},
	{"device/...", "graph", "backends do not know models: they are given calls"},
	{"device/...", "nn", "backends do not know models"},
	{"device/...", "spec", "backends do not know models"},
	{"device/...", "plan", "backends obey queues, not plans"},
	{"store", "plan", "the disk obeys queues, not plans"},
	{"store", "executor", "the disk is a device like others"},
	{"store/journal", "plan", "a journal keeps bytes; what they mean is not its business"},
	{"store/journal", "executor", "whoever holds the tensors reads and writes them"},
	{"run", "train", "a run knows nothing of the loops over it"},
	{"run", "generate", "a run knows nothing of the loops over it"},
	{"run/batch", "plan", "batches are matched with models, whatever the plan"},
	{"planner", "run", "the planner is asked by runs"},
	{"executor", "planner", "the executor obeys any sound plan, also a hand-written one"},
	{"executor", "arch", "the executor knows programs, not architectures"},
	{"executor", "hf", "where weights come from is not the executor's business"},
	{"plan", "planner", "a plan is data; who made it does not matter"},
	{"plan", "device/...", "a plan is data; it can be made for hardware one does not own"},
	{"planner/strategy", "planner/goal", "strategies are data: the planner reads them"},
	{"planner/goal", "planner/layout", "what is wanted does not depend on how it is planned"},
	{"planner/pass", "spec", "passes work on any plan, whoever wrote it"},
	{"planner/pass", "planner/strategy", "passes work on any plan, whoever wrote it"},
	{"planner/layout", "planner/emit", "a model is laid out before plans are written"},
	{"planner/emit", "planner/forecast", "a plan is written before it is forecast"},
	{"planner/forecast", "planner/layout", "any plan can be forecast, also a hand-written one"},
	{"planner/search", "planner/advise", "advice is made of searches"},
	{"planner/...", "hf", "the planner plans shapes, not files"},
	{"planner/...", "arch", "the planner plans any model"},
	{"op", "graph", "ops are what programs are made of"},
	{"graph", "autograd", "gradients are made of programs"},
	{"safetensors", "hf", "the format knows nothing of folders"},
	{"tensorfile", "safetensors", "what formats have in common knows none of them"},
	{"tokenizer", "hf", "a tokenizer is a file of its own"},
	{"data", "tokenizer", "data takes any tokenizer"},
	{"chat/...", "tokenizer", "a template writes text; what the tokens are is not its business"},
	{"chat/...", "data", "conversations are written the same for training and for talking"},
	{"machine", "device/...", "a machine is described, not driven"},
	{"recipe", "finetune", "settings are names and fields; what they do comes after"},
	{"train", "eventlog", "a loop calls hooks; who records what they say is not its business"},
	{"eventlog", "plan", "a log has records; what they mean is the views' business"},
	{"monitor", "finetune", "runs are watched, whoever started them"},
	{"train", "recipe", "a loop takes values; where they come from is not its business"},
	{"rig", "plan", "a computer is opened and described before anything is planned"},
	{"device/...", "rig", "backends are opened, they open nothing"},
	{"rig", "device/cuda/...", "backends are found through the registry: a program imports those it wants"},
}

// behind lists packages that only some may import directly: everybody else goes through
// what is in front of them.
var behind = map[string]struct {
	who     []string
	because string
}{
	"safetensors":   {[]string{"hf", "hf/offload", "checkpoint", "internal/reference"}, "weights come from any tensorfile.Source"},
	"html/template": {nil, templates},
	"text/template": {nil, templates},
}

const templates = "templates look up methods by name, so linkers keep every method there is: the binary grows by 2.5 MiB"

func TestBehind(t *testing.T) {
	for pkg, list := range imports(t) {
		for _, imp := range list {
			dep := strings.TrimPrefix(imp, module)
			if rule, ok := behind[dep]; ok && !slices.Contains(rule.who, pkg) {
				t.Errorf("%s imports %s: %s", pkg, dep, rule.because)
			}
		}
	}
}

// outside lists which packages may use modules from outside, and which.
var outside = map[string][]string{
	"golang.org/x/sys":              {"internal/offheap", "internal/vfs", "rig", "dtype", "quant", "device/cpu/...", "bench", "cmd/spillway", "internal/term", "internal/stopwatch"},
	"github.com/ebitengine/purego":  {"internal/dl"},
	"golang.org/x/text":             {"tokenizer"},
	"golang.org/x/image":            {"view"},
	"github.com/dlclark/regexp2/v2": {"tokenizer"},
	"github.com/goccy/go-yaml":      {"recipe"},
	"github.com/klauspost/compress": {"data/parquet", "finetune"},
	"github.com/spf13/cobra":        {"cmd/spillway"},
	"github.com/spf13/pflag":        {"cmd/spillway"},
}

const module = "spillway/"

func covers(pattern, pkg string) bool {
	base, deep := strings.CutSuffix(pattern, "/...")
	return pkg == base || deep && strings.HasPrefix(pkg, base+"/")
}

// imports asks the go command what every package of the module imports, tests
// left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the go command does not answer here: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 0 {
			all[strings.TrimPrefix(f[0], module)] = f[1:]
		}
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func TestImports(t *testing.T) {
	direct := imports(t)
	for _, rule := range never {
		matched := false
		for pkg := range direct {
			if !covers(rule.who, pkg) {
				continue
			}
			matched = true
			if path := reach(direct, pkg, rule.on, map[string]bool{}); path != nil {
				t.Errorf("%s: %s", strings.Join(path, " imports "), rule.because)
			}
		}
		if !matched {
			t.Errorf("no package %s: mend the rule", rule.who)
		}
	}
}

// reach finds a chain of imports from a package to one the pattern covers.
func reach(direct map[string][]string, pkg, pattern string, seen map[string]bool) []string {
	for _, imp := range direct[pkg] {
		dep, ours := strings.CutPrefix(imp, module)
		if !ours || seen[dep] {
			continue
		}
		seen[dep] = true
		if covers(pattern, dep) && dep != pkg {
			return []string{pkg, dep}
		}
		if rest := reach(direct, dep, pattern, seen); rest != nil {
			return append([]string{pkg}, rest...)
		}
	}
	return nil
}

func TestOutsideModules(t *testing.T) {
	for pkg, list := range imports(t) {
		for _, imp := range list {
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") {
				continue // the standard library or ours
			}
			if !allowed(imp, pkg) {
				t.Errorf("%s imports %s: modules from outside have their places, see docs/dependencies.md", pkg, imp)
			}
		}
	}
}

func allowed(imp, pkg string) bool {
	for mod, where := range outside {
		if imp != mod && !strings.HasPrefix(imp, mod+"/") {
			continue
		}
		for _, p := range where {
			if covers(p, pkg) {
				return true
			}
		}
	}
	return false
}

// written lists what makes or changes files outside of internal/vfs, by file, with the reason why
// a kill in the middle does no harm. Everything else goes through vfs.Replace, vfs.Begin or
// vfs.Publish: what they write is absent or whole.
var written = map[string]string{
	"eventlog/lines.go":         "lines are appended; half of one is removed when the log is opened again",
	"eventlog/writer.go":        "records are appended; a part of one is overwritten when the log is opened again",
	"finetune/sources.go":       "in a folder of vfs.TempDir",
	"demo/demo.go":              "in a folder of vfs.TempDir",
	"bench/random.go":           "in a folder of vfs.TempDir",
	"bench/randomgeneration.go": "in a folder of vfs.TempDir",
	"weights/park.go":           "a file without a name",
	"data/cache.go":             "a file without a name",
	"hub/":                      "as the hub's cache has it: blobs get their names by a rename once their checksums hold, and the ref that finds a snapshot comes last",
	"rig/":                      "a file without a name, to measure the disk",
	"run/replan.go":             "a folder for a file without a name",
}

// Files are written whole or not at all.
func TestWritingIsAtomic(t *testing.T) {
	calls := []string{"os.Create", "os.WriteFile", "os.OpenFile", "os.Rename", "os.CreateTemp", "os.MkdirTemp", "os.Mkdir", "os.MkdirAll", "os.Link", "os.Symlink", "os.Truncate"}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "tools" || rel == "internal/vfs" || rel == "internal/datadriven" || rel == "build" || strings.HasPrefix(d.Name(), ".") && rel != "." {
				return filepath.SkipDir
			}
			return nil
		}
		for file := range written {
			if rel == file || strings.HasSuffix(file, "/") && strings.HasPrefix(rel, file) {
				return nil
			}
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return selectors(path, func(name string, line int) {
			if slices.Contains(calls, name) {
				t.Errorf("%s:%d uses %s: what is written goes through internal/vfs, so that a kill never leaves half of it", rel, line, name)
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What measures how long work takes asks internal/stopwatch, since time.Now and time.Since count in ticks of
// half a millisecond and more on Windows.
func TestMeasuringIsPrecise(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, dir := range []string{"bench", "device", "executor", "generate", "inference", "rig", "train"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, path)
			switch rel = filepath.ToSlash(rel); {
			case err != nil:
				return err
			case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
				return nil
			case rel == "rig/cache.go", rel == "bench/clock.go": // the date of an entry; the system's clock itself
				return nil
			}
			return selectors(path, func(name string, line int) {
				if name == "time.Now" || name == "time.Since" {
					t.Errorf("%s:%d uses %s: internal/stopwatch is precise on every system", rel, line, name)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Library code says what it does through values and errors: it does not log, read
// the environment or the command line, or end the process. Only hub reads the environment: where
// another library's cache is, that library's variables say.
func TestLibrariesKeepToThemselves(t *testing.T) {
	refused := map[string]string{
		"os.Getenv": "configuration is passed in", "os.LookupEnv": "configuration is passed in", "os.Environ": "configuration is passed in",
		"os.Args": "the command line belongs to cmd", "os.Exit": "errors are returned", "log.": "events go to a sink", "slog.": "events go to a sink",
		"os.Stdout": "output is passed in", "os.Stderr": "output is passed in",
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			switch top, _, _ := strings.Cut(filepath.ToSlash(rel), "/"); {
			case top == "cmd", top == "examples", top == "tools", top == "bench", strings.HasPrefix(top, ".") && top != ".", d.Name() == "testdata":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return selectors(path, func(name string, line int) {
			for word, why := range refused {
				if name == "os.Getenv" && filepath.Dir(rel) == "hub" {
					continue
				}
				if name == word || strings.HasSuffix(word, ".") && strings.HasPrefix(name, word) {
					t.Errorf("%s:%d uses %s: %s", rel, line, name, why)
				}
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// selectors calls use for every "package.Name" of a file.
func selectors(path string, use func(name string, line int)) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return err
	}
	packages := map[string]bool{}
	for _, imp := range f.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		packages[filepath.Base(p)] = true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && packages[x.Name] {
				use(x.Name+"."+s.Sel.Name, set.Position(s.Pos()).Line)
			}
		}
		return true
	})
	return nil
}
