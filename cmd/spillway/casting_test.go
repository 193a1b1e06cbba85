package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/demo"
)

// A model whose linear layers are held in 8-bit floats evaluates about as well, in less memory, streamed as resident.
func TestLayerwiseCastingFlags(t *testing.T) {
	dir := t.TempDir()
	model, data := filepath.Join(dir, "m"), filepath.Join(dir, "short.txt")
	if err := os.WriteFile(data, []byte(demo.Text[:600]), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "init", "small-llama", "--out", model); r.code != exitOK {
		t.Fatal(r.err)
	}
	evaluated := func(flags ...string) (loss, bytes float64) {
		t.Helper()
		v := command(t, append([]string{"eval", model, "--data", data, "--seq-len", "64", "--device", "cpu:threads=2", "--dtype", "bf16", "--json"}, flags...)...).object(t)
		return at(t, v, "loss").(float64), at(t, v, "measured_peak_bytes").(float64)
	}
	plain, whole := evaluated()
	cast, less := evaluated("--layerwise-casting", "float8_e4m3fn")
	if cast == plain || cast-plain > 0.1 || plain-cast > 0.1 || less > 0.7*whole {
		t.Errorf("loss %v in %v bytes, cast %v in %v", plain, whole, cast, less)
	}
	if _, more := evaluated("--layerwise-casting", "float8_e4m3fn", "--skip-casting", "down_proj"); !(more > less && more < whole) {
		t.Errorf("without down_proj it takes %v bytes, with it %v", more, less)
	}
	if streamed, bytes := evaluated("--layerwise-casting", "float8_e4m3fn", "--max-memory", fmt.Sprintf("%.0fB", 0.8*less)); streamed != cast || bytes > 0.8*less {
		t.Errorf("streamed: loss %v in %v bytes, resident %v in %v", streamed, bytes, cast, less)
	}
	for want, flags := range map[string][]string{
		"has no effect: nothing is cast":                 {"--skip-casting", "down_proj"},
		"it is float8_e4m3fn":                            {"--layerwise-casting", "int3"},
		`that stay as they are: none is named "encoder"`: {"--layerwise-casting", "float8_e4m3fn", "--skip-casting", "encoder"},
	} {
		if r := command(t, append([]string{"generate", model, "--prompt", "a"}, flags...)...); r.code == exitOK || !strings.Contains(r.err, want) {
			t.Errorf("%v: %s", flags, r.err)
		}
	}
}
