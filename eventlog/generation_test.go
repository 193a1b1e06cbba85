package eventlog

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func stretch(step int64) Generation {
	return Generation{Step: step, Steps: 2, UnixNano: 1_700_000_000_000_000_000 + step, Seconds: 0.02, PromptTokens: 3, NewTokens: 4, PrefillSeconds: 0.5, DecodeSeconds: 0.25, TotalPrompt: 5, TotalNew: 6,
		Sequences: 7, Waiting: 17, Finished: 18, Positions: 8, PagesUsed: 19, Pages: 20, PageTokens: 21, CacheBytes: 22, Forecast: 0.01, Bound: ResourceOf("compute"), ShareOfRoofline: 0.5, PredictedBytes: 10, MeasuredBytes: 11, DriverBytes: 12, Tiers: Tiers{13, 14, 15, 16}, Traced: true}
}

// The log of a run that generates is read as it was written, and summarized by its newest
// stretch, also when a second process goes on with it.
func TestGenerationIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	var want []Generation
	profile := Profile{Step: 1, Phase: "rows 1", Seconds: 0.02, Rows: []ProfileRow{{Module: "layer", Op: "matmul", Pass: "forward", Calls: 7, Seconds: 0.01, Bound: 0.005, By: "memory", Flops: 1e9, Bytes: 1 << 20}}}
	for process := range int64(2) {
		w, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.Start(Start{Time: time.Unix(1, 0), Run: "run-1", Model: "tiny", Task: "generate", PID: 7, Step: 200 * process})
		w.Profile(profile)
		for n := range int64(200) {
			g := stretch(200*process + n + 1)
			w.Generation(&g)
			want = append(want, g)
		}
		if process == 0 {
			w.End(End{How: Done})
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Damaged != nil || !reflect.DeepEqual(l.Generations, want) || l.Step() != 400 || l.End != nil {
		t.Errorf("%d stretches, step %d, end %v, damaged %v", len(l.Generations), l.Step(), l.End, l.Damaged)
	}
	if len(l.Profiles) != 2 || !reflect.DeepEqual(l.Profiles[1], profile) || profile.Rows[0].Share() != 0.5 {
		t.Errorf("%+v", l.Profiles)
	}
	s, err := Summarize(path)
	if err != nil || s.Generated == nil || *s.Generated != want[399] || s.Last != nil || s.End != nil || len(s.RecentGenerations) < 10 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestGenerationAllocatesNothing(t *testing.T) {
	g := stretch(1)
	allocatesNothing(t, func(w *Writer) { w.Generation(&g) })
	(*Writer)(nil).Generation(&g)
}

func TestGenerationRates(t *testing.T) {
	g := Generation{NewTokens: 10, DecodeSeconds: 0.5}
	if g.DecodeRate() != 20 || g.PrefillRate() != 0 {
		t.Error(g.DecodeRate(), g.PrefillRate())
	}
	g = Generation{NewTokens: 1, PromptTokens: 30, PrefillSeconds: 2, DecodeSeconds: 1}
	if g.DecodeRate() != 0 || g.PrefillRate() != 15 {
		t.Error(g.DecodeRate(), g.PrefillRate())
	}
}
