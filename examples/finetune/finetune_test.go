package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The program prints the eval loss that spillway train prints for the same recipe.
func TestAsTheCommand(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"recipe.yaml", "sums.jsonl"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goRun(t, dir, "../../cmd/spillway", "init", "tiny-llama", "--out", "model")
	ours := goRun(t, dir, ".", "recipe.yaml")
	command := goRun(t, dir, "../../cmd/spillway", "train", "--recipe", "recipe.yaml", "--out", "other")
	if want := regexp.MustCompile(`eval loss \d\.\d{4}`).FindString(command); want == "" || strings.TrimSpace(ours) != want {
		t.Errorf("the program prints %q, the command %q", ours, command)
	}
}

// goRun builds a program and runs it in a folder.
func goRun(t *testing.T, dir, pkg string, args ...string) string {
	t.Helper()
	program := filepath.Join(dir, "program-"+filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", pkg, args, err, out)
	}
	return string(out)
}
