package finetune

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/machine"
	"spillway/recipe"
	"spillway/rig"
)

// Forecasts know the documents: of the same sequences, short documents are forecast to take
// less time than one long one, and plans say which they assume.
func TestForecastsKnowDocuments(t *testing.T) {
	dir := t.TempDir()
	seconds := map[int]float64{}
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []int{20, 2000} {
		file := filepath.Join(dir, fmt.Sprintf("%d.jsonl", words))
		var text strings.Builder
		for range 40000 / words {
			fmt.Fprintf(&text, "{\"text\": %q}\n", strings.Repeat("word ", words))
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		r := recipe.New()
		for name, value := range map[string]string{"model": "tiny-llama", "data": file, "device": "cpu", "seq-len": "256", "max-steps": "1", "out": filepath.Join(dir, "out")} {
			if err := r.Flags().Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		run, err := Prepare(r, Options{Rig: rig.Options{Machine: here}}) // both on one machine, whatever else it does
		if err != nil {
			t.Fatal(err)
		}
		if got := run.Job.Plan.Document; words == 20 && (got < 70 || got > 101) || words == 2000 && got < 200 {
			t.Errorf("documents of %d words of 5 bytes: a position is in one of %d tokens", words, got)
		}
		seconds[words] = run.Job.Plan.Forecast.StepSeconds
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !(seconds[20] < seconds[2000]) {
		t.Errorf("short documents take %v s, long ones %v s", seconds[20], seconds[2000])
	}
}
