package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/device/cuda/driver"
	"spillway/dtype"
)

// searchPaths are folders given by the environment to look for libraries in.
func searchPaths() []string {
	var folders []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"} {
		if f := os.Getenv(name); f != "" {
			folders = append(folders, f)
		}
	}
	return folders
}

func compiler(t *testing.T) *driver.NVRTC {
	t.Helper()
	c, err := driver.LoadNVRTC(searchPaths())
	if err != nil {
		t.Skipf("kernels are not compiled here: %v", err)
	}
	return c
}

// allUnits lists everything that is compiled on some card.
func allUnits() []unit {
	var all []unit
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, file := range general {
			all = append(all, unit{file: file, element: t})
		}
		all = append(all, unit{file: "attention", element: t, head: 64}, unit{file: "attention", element: t, head: 256, extras: true})
		if t == dtype.F32 {
			continue
		}
		all = append(all, unit{file: "flash", element: t, head: 64}, unit{file: "flash", element: t, head: 128, extras: true})
	}
	return all
}

// Every kernel compiles, for each generation of cards, also where there is no card.
func TestCompile(t *testing.T) {
	c := compiler(t)
	for _, capability := range [][2]int{{8, 0}, {9, 0}} {
		for _, u := range allUnits() {
			if u.element == dtype.F16 && capability[0] == 9 {
				continue // differs from bf16 by two instructions
			}
			t.Run(fmt.Sprintf("sm_%d%d %s %v %d", capability[0], capability[1], u.file, u.element, u.head), func(t *testing.T) {
				t.Parallel()
				image, err := u.compile(c, capability[0], capability[1])
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(string(image), "\x7fELF") {
					t.Errorf("%d bytes that are no machine code", len(image))
				}
			})
		}
	}
}

func TestCompileError(t *testing.T) {
	c := compiler(t)
	_, err := c.Compile("broken.cu", "__global__ void f() { nonsense; }", []string{"--gpu-architecture=sm_80"})
	if err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "broken.cu") {
		t.Errorf("a broken kernel gives %v, want the compiler's words", err)
	}
}

// Every file of kernels belongs to a unit.
func TestEveryFileIsCompiled(t *testing.T) {
	known := map[string]bool{}
	for _, u := range allUnits() {
		known[u.file+".cu"] = true
	}
	files, err := filepath.Glob("kernels/*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("no kernels: %v", err)
	}
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("%s is compiled nowhere", f)
		}
	}
}
