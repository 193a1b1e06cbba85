package view_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/device/devicetest"
	"spillway/eventlog"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/trace"
	"spillway/view"
)

var update = flag.Bool("update", false, "rewrite golden files")

var keep = flag.String("tfevents", "", "write the event file of TestTensorBoard here, for TensorBoard to read")

// golden compares with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is another picture (run with -update after looking)", path)
	}
	d := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%s is not XML: %v", name, err)
		}
	}
}

// plans are small ones that differ in where things are stored and who updates.
func plans(t *testing.T) map[string]*plan.Plan {
	t.Helper()
	list := map[string]*plan.Plan{}
	for name, updates := range map[string]strategy.Updater{"device": strategy.ByDevice, "host": strategy.ByCPU} {
		goal := tiny.AdamW(2, false)
		goal.Constraints.Updates = updates
		site := tiny.Site(1 << 20)
		site.Kernels = devicetest.NewPlain(0)
		p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}), goal, site)
		if err != nil {
			t.Fatal(err)
		}
		list[name] = p
	}
	return list
}

// The drawn memory is the plan's, to the byte, after every instruction: it is compared with a
// second walk over the lives of buffers, and its peak with what the planner reports.
func TestMemoryEqualsThePlan(t *testing.T) {
	for name, p := range plans(t) {
		m := view.MemoryOf(p)
		usage := p.PeakUsage()
		for _, tier := range m.Tiers {
			if tier.Reserved != p.Peak()[tier.Tier] {
				t.Errorf("%s: %s has %d bytes, the plan %d", name, tier.Tier, tier.Reserved, p.Peak()[tier.Tier])
			}
			if len(tier.Arenas) == 1 {
				var most int64
				for class, tiers := range usage {
					if class != plan.Gaps {
						most += tiers[tier.Tier]
					}
				}
				if tier.Peak != most {
					t.Errorf("%s: %s has %d bytes at most, the plan %d", name, tier.Tier, tier.Peak, most)
				}
			}
			// From the rectangles: who is alive after instruction i.
			at := 0
			for i := -1; i < len(p.Instructions); i++ {
				for at+1 < len(tier.Changes) && tier.Changes[at+1] <= i {
					at++
				}
				var stacked, alive int64
				for c := range tier.Classes {
					stacked += tier.Bytes[c][at]
				}
				for _, a := range tier.Arenas {
					for _, l := range a.Lives {
						if l.From <= i && i < l.To {
							alive += l.Bytes
						}
					}
				}
				if stacked != alive {
					t.Fatalf("%s: after instruction %d the stack of %s has %d bytes, its rectangles %d", name, i, tier.Tier, stacked, alive)
				}
			}
			if most := slices.Max(totals(tier)); most != tier.Peak {
				t.Errorf("%s: the stack of %s is %d high, its peak is %d", name, tier.Tier, most, tier.Peak)
			}
		}
	}
}

// The map has all that is stored between steps for params, where the plan has it.
func TestMapEqualsThePlan(t *testing.T) {
	for name, p := range plans(t) {
		homes := p.HomeUsage()
		for _, r := range view.MapOf(p).Rows {
			sums := map[plan.Tier]int64{}
			for _, c := range r.Cells {
				if c.Bytes > 0 {
					sums[c.Tier] += c.Bytes
				}
			}
			for tier, n := range sums {
				if homes[r.Class][tier] != n {
					t.Errorf("%s: %s on %s is %d bytes, the plan has %d", name, r.Class, tier, n, homes[r.Class][tier])
				}
			}
		}
	}
}

func totals(t view.TierMemory) []int64 {
	sums := make([]int64, len(t.Changes))
	for c := range t.Classes {
		for i, n := range t.Bytes[c] {
			sums[i] += n
		}
	}
	return sums
}

// sampleLog writes a run of some steps.
func sampleLog(t *testing.T, dir string, steps int, slope float64, p *plan.Plan) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Start(eventlog.Start{Time: time.Unix(1, 0), Run: filepath.Base(dir), Model: "tiny <&>"})
	w.Settings([]eventlog.Setting{{Name: "learning-rate", Value: "1e-4<script>"}})
	if p != nil {
		w.Plan(0, p)
		w.Trace(eventlog.Trace{Step: 0, Forecast: true, Events: events(p, 1)})
		w.Trace(eventlog.Trace{Step: 3, Events: events(p, 1.3)})
	}
	for n := range steps {
		it := eventlog.Iteration{Step: int64(n + 1), MaxSteps: int64(steps), Loss: 5 - slope*float64(n)/float64(steps), LR: 1e-4, Seconds: 0.1, TokensPerSecond: 1280, Forecast: 0.09,
			MeasuredBytes: 3 << 20, PredictedBytes: 3 << 20, StateBytes: 1 << 20, ShareOfRoofline: 0.9, Bound: 1}
		if n%10 == 9 {
			it.EvalLoss = it.Loss + 0.1
		}
		w.Iteration(&it)
	}
	w.Alert(eventlog.Alert{Step: 2, Level: eventlog.Warning, Name: "loss-spike", Text: "a <b>spike</b>"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// events of a plan, each a microsecond times slow.
func events(p *plan.Plan, slow float64) (list []trace.Event) {
	verbs := map[plan.Verb]trace.Verb{plan.Move: trace.Move, plan.Run: trace.Run, plan.Reduce: trace.Reduce, plan.Update: trace.Update, plan.Free: trace.Free}
	at := map[trace.Lane]int64{}
	for i, s := range p.Instructions {
		lane := trace.Lane{Device: p.Devices[s.Device].Name, Queue: string(s.Lane)}
		took := int64(slow * float64(1000+i%7*100))
		list = append(list, trace.Event{Verb: verbs[s.Verb], Name: "block <x>", Lane: lane, Start: at[lane], End: at[lane] + took, Bytes: int64(i), Block: s.Block, MicroBatch: s.MicroBatch})
		at[lane] += took
	}
	return list
}

// Pictures are the same bytes for the same runs.
func TestPictures(t *testing.T) {
	p := plans(t)["host"]
	run, err := view.Open(sampleLog(t, filepath.Join(t.TempDir(), "run"), 40, 2, p))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	loss, err := view.FindMetric("loss")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "loss.svg", view.Curves([]*view.Run{run}, loss, view.DefaultPoints).Picture().SVG())
	golden(t, "memory.svg", view.MemoryOf(p).Picture().SVG())
	golden(t, "map.svg", view.MapOf(p).Picture().SVG())
	line, err := run.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "timeline.svg", line.Picture().SVG())
	golden(t, "forecast.svg", view.CheckForecast(line).Picture().SVG())
	if line.Step != 3 || len(line.Worst(5)) != 5 || line.MeasuredSeconds < 1.2*line.ForecastSeconds {
		t.Errorf("step %d, %v against %v", line.Step, line.MeasuredSeconds, line.ForecastSeconds)
	}
}

// A page about a run needs nothing from anywhere, and texts of a run are only texts in it.
func TestReportIsSelfContained(t *testing.T) {
	dir := t.TempDir()
	p := plans(t)["device"]
	runs, err := view.OpenAll([]string{sampleLog(t, filepath.Join(dir, "a", "run"), 40, 2, p), sampleLog(t, filepath.Join(dir, "b", "run"), 40, 3, p)})
	if err != nil {
		t.Fatal(err)
	}
	defer view.CloseAll(runs)
	for _, some := range [][]*view.Run{runs[:1], runs} {
		var page, again bytes.Buffer
		now := time.Unix(1e9, 0)
		if err := view.WriteReport(&page, some, now); err != nil {
			t.Fatal(err)
		}
		if err := view.WriteReport(&again, some, now); err != nil || !bytes.Equal(page.Bytes(), again.Bytes()) {
			t.Errorf("two reports differ: %v", err)
		}
		text := strings.ReplaceAll(page.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, bad := range []string{"http:", "https:", "src=", "href=", "url(", "@import", "<script", "<b>spike", "<x>"} {
			if strings.Contains(text, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
	}
	if runs[0].Name == runs[1].Name {
		t.Errorf("two runs are called %s", runs[0].Name)
	}
}

// What JSON, CSV and picture show are the same numbers.
func TestOneSourceOfNumbers(t *testing.T) {
	run, err := view.Open(sampleLog(t, filepath.Join(t.TempDir(), "run"), 30, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	c, err := view.Compare([]*view.Run{run})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back view.Comparison
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := c.CSV(&table); err != nil {
		t.Fatal(err)
	}
	for i, f := range back.Figures {
		if *f.Number[0] != *c.Figures[i].Number[0] || !strings.Contains(table.String(), f.Name) {
			t.Errorf("%s: %v", f.Name, f)
		}
	}
	for _, f := range c.Figures {
		if f.Name == "loss, last" && math.Abs(*f.Number[0]-(5-2*29.0/30)) > 1e-12 {
			t.Errorf("the last loss is %v", *f.Number[0])
		}
	}
	for _, m := range view.Metrics {
		if chart := view.Curves([]*view.Run{run}, m, 0); len(chart.Lines) > 0 && len(chart.Lines[0].X) > 30 {
			t.Errorf("%s has %d points", m.Name, len(chart.Lines[0].X))
		}
	}
}

// A million points become one per pixel quickly, and no spike is lost.
func TestManyPoints(t *testing.T) {
	run := &view.Run{Log: &eventlog.Log{}, Name: "long"}
	for n := range 1_000_000 {
		it := eventlog.Iteration{Step: int64(n + 1), Loss: 2}
		if n == 765_432 {
			it.Loss = 50
		}
		run.Iterations = append(run.Iterations, it)
	}
	loss, err := view.FindMetric("loss")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	chart := view.Curves([]*view.Run{run}, loss, view.DefaultPoints)
	picture := chart.Picture().SVG()
	took := time.Since(began)
	if len(chart.Lines[0].X) != view.DefaultPoints || slices.Max(chart.Lines[0].High) != 50 || len(picture) > 200_000 {
		t.Errorf("%d points, the highest is %v, %d bytes", len(chart.Lines[0].X), slices.Max(chart.Lines[0].High), len(picture))
	}
	t.Logf("a million points are drawn in %v", took)
	if took > time.Minute { // 30 ms on an idle machine; hours where every point were compared with every other
		t.Errorf("it took %v", took)
	}
}

// A log that is damaged in the middle is shown up to there.
func TestDamagedRunsAreShown(t *testing.T) {
	dir := sampleLog(t, filepath.Join(t.TempDir(), "run"), 40, 2, nil)
	path := filepath.Join(dir, eventlog.FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)*2/3] ^= 16
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	run, err := view.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var page bytes.Buffer
	if err := view.WriteReport(&page, []*view.Run{run}, time.Now()); err != nil || !strings.Contains(page.String(), "is damaged at byte") || len(run.Iterations) < 10 {
		t.Errorf("%v, %d iterations", err, len(run.Iterations))
	}
}

// A plan that the planner met twice is listed once.
func TestPlansAreListedOnce(t *testing.T) {
	p := &plan.Plan{Strategy: "a", Rejected: []plan.Alternative{
		{Strategy: "b", Reason: "slower", StepSeconds: 2, PeakBytes: map[plan.Tier]int64{plan.OnDevice: 5}}, {Strategy: "b", Reason: "slower", StepSeconds: 3},
		{Strategy: "b", Reason: "slower", StepSeconds: 2, PeakBytes: map[plan.Tier]int64{plan.OnDevice: 5}},
	}}
	if list := view.PlansOf(p); len(list) != 3 || list[0].Strategy != "a" || list[1].StepSeconds != 2 || list[2].StepSeconds != 3 {
		t.Errorf("%+v", list)
	}
}

// The machine of a run is that of its log; one that the log does not have, or that has no device, is an error.
func TestMachinesOfRuns(t *testing.T) {
	for text, want := range map[string]string{``: "on which machine", `{`: "on which machine", `{}`: "no devices", `{"devices":[{"name":"gpu0"}]}`: ""} {
		run := view.Run{Log: &eventlog.Log{Machine: json.RawMessage(text)}, Name: "a"}
		m, err := run.On()
		if want == "" && (err != nil || len(m.Devices) != 1 || m.Devices[0].Name != "gpu0") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
}
