package placement

import (
	"strings"
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner/strategy"
)

// placesOf a tiny model by a map, each as the place is written.
func placesOf(t *testing.T, config, text string) (map[string]strategy.Place, []string, error) {
	t.Helper()
	m, err := ParseMap(text)
	if err != nil {
		return nil, nil, err
	}
	return m.Places(Blocks(tiny.Model(t, config, graph.Config{MicroBatchSize: 1, Seq: 8, Task: graph.Infer})), Memory{})
}

func TestMapByNames(t *testing.T) {
	places, notices, err := placesOf(t, tiny.Untied, `{"model.embed_tokens": 1, "model.layers": 0, "model.layers.2": "cpu", "model.norm": "cuda:1", "lm_head": 1, "model.rotary_emb": 0}`)
	if err != nil {
		t.Fatal(err)
	}
	on := func(tier plan.Tier, d int) strategy.Place { return strategy.Place{Tier: tier, Device: d} }
	for name, want := range map[string]strategy.Place{
		"model.embed_tokens": on(plan.OnDevice, 1), "model.layers.0": on(plan.OnDevice, 0), "model.layers.1": on(plan.OnDevice, 0),
		// the longer name wins; it runs on the first device there is
		"model.layers.2": on(plan.OnHost, 1), "model.layers.3": on(plan.OnDevice, 0), "lm_head": on(plan.OnDevice, 1),
	} {
		if places[name] != want {
			t.Errorf("%s is on %v, want %v", name, places[name], want)
		}
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "model.rotary_emb") {
		t.Errorf("notices %v", notices)
	}
}

// Tied weights are stored once: the head runs elsewhere and reads them there.
func TestMapOfTiedWeights(t *testing.T) {
	places, _, err := placesOf(t, tiny.Llama, `{"model.embed_tokens": 0, "lm_head": 0, "model.layers": 0, "model.norm": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	if places["lm_head"] != (strategy.Place{Tier: plan.OnDevice, Device: 1}) {
		t.Errorf("the head is on %v, its norm on 1", places["lm_head"])
	}
	if _, _, err := placesOf(t, tiny.Llama, `{"": 0, "lm_head": 1}`); err == nil || !strings.Contains(err.Error(), "tied") {
		t.Errorf("a tied head elsewhere: %v", err)
	}
}

func TestMapErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"model.embed_tokens": 0, "model.layers": 0}`: "2 params have no place: model.norm.weight, lm_head.weight",
		`{"model.layers": 0}`:                          "model.embed_tokens.weight",
		`{"": 0, "model.layers.1.mlp": 1}`:             "model.layers.1, which is placed whole",
		`{"": 0, "lm_head": "cpu"}`:                    "lm_head, which is placed whole",
		`{"": -1}`:                                     "from 0 on",
		`{"": 1.5}`:                                    "from 0 on",
		`{"": "gpu"}`:                                  `"cuda:N"`,
		`{"": true}`:                                   `"cuda:N"`,
		`{}`:                                           "empty",
		`best`:                                         "neither auto",
		`{"": 0} {"": 1}`:                              "follows",
		`[0]`:                                          "JSON object",
	} {
		if _, _, err := placesOf(t, tiny.Untied, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	here := Memory{Devices: map[int]int64{0: 100, 1: 100}, Host: 1000}
	for text, want := range map[string][3]int64{ // device 0, device 1, host; -1 where there is none
		"2KiB":                      {2048, 2048, 1000},
		"64":                        {64, 64, 1000},
		"640B":                      {640, 640, 1000},
		"2TiB":                      {2 << 40, 2 << 40, 1000},
		"0=10,cpu=2KB":              {10, -1, 2000},
		"gpu=10,cpu=2KB":            {10, 10, 2000},
		"gpu=10,1=20":               {10, 20, 0},
		` { "1": "8Kb", "cpu": 5 }`: {-1, 1000, 5},
	} {
		m, err := ParseMemory(text, here)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]int64{-1, -1, m.Host}
		for d, n := range m.Devices {
			got[d] = n
		}
		if got != want || !m.Given {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "10PB", "-1", "-1GB", "2=10GiB", "gpu=x", "gpu3=1", "0=1,0=2", "0=", "cpu", `{"0": "x"}`, `{"0": -1}`, `{"0": [1]}`, "9e99GB", "NaNGB"} {
		if m, err := ParseMemory(text, here); err == nil {
			t.Errorf("%q is taken as %+v", text, m)
		}
	}
}
