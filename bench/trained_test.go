package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway"
	"spillway/recipe"
)

// The runs that are known by name are such as train takes them: its settings, and models that open.
func TestTrainedRowsAreRunsOfTrain(t *testing.T) {
	names := map[string]bool{}
	for _, row := range trainedRows() {
		if names[row.Name] || strings.Contains(row.Name, ",") {
			t.Errorf("--only cannot pick %q", row.Name)
		}
		names[row.Name] = true
		model := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(model, row.Model, 0o644); err != nil {
			t.Fatal(err)
		}
		var preset string
		if json.Unmarshal(row.Model, &preset) == nil {
			model = preset
		}
		s := recipe.New()
		for key, value := range map[string]string{recipe.ModelKey: model, "data": "tokens.bin"} {
			if err := s.Flags().Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		for key, value := range row.Settings {
			if err := s.Flags().Set(key, value); err != nil {
				t.Errorf("%s: --%s %s: %v", row.Name, key, value, err)
			}
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
		m, err := spillway.Open(model)
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		if m.Info.Vocab < presetVocabulary {
			t.Errorf("%s has %d tokens, the data up to %d", row.Name, m.Info.Vocab, presetVocabulary)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A report says where measured time and forecast differ most.
func TestDifferencesNameTheLargest(t *testing.T) {
	row := &RandomRow{
		Seconds:       1,
		Spent:         map[string]float64{"cuda:0 compute layer forward": 0.5, "cuda:0 in move": 0.2, "host compute update": 0.105},
		ForecastSpent: map[string]float64{"cuda:0 compute layer forward": 0.4, "cuda:0 in move": 0.5, "host compute update": 0.1, "cuda:0 out move": 0.02},
	}
	if got, want := row.Differences(), "cuda:0 in move -300 ms, cuda:0 compute layer forward +100 ms, cuda:0 out move -20 ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
