package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"spillway/device/devicetest"
	"spillway/eventlog"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/run"
	"spillway/trace"
	"spillway/view"
)

// open opens the page of a server at a view.
func open(t *testing.T, address, hash string) context.Context {
	t.Helper()
	ctx := browser(t)
	if err := chromedp.Do(ctx, chromedp.Navigate(address+"/#"+hash)); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// Every view has all its forms, and they have the same numbers: JSON and CSV each one, and the
// pictures a shape for each.
func TestEveryForm(t *testing.T) {
	dir, p := filepath.Join(t.TempDir(), "run"), tinyPlan(t)
	record(t, dir, 40, p, eventsOf(p))
	_, h := serve(t, Options{Runs: []string{dir}})
	base := h.URL + "/api/run/" + idOf(dir)
	list := func(path ...string) func(map[string]any) int { // sizes of lists in JSON, added up
		return func(v map[string]any) int {
			var count func(v any, path []string) int
			count = func(v any, path []string) (n int) {
				if l, ok := v.([]any); ok && len(path) == 0 {
					return len(l)
				} else if ok {
					for _, e := range l {
						n += count(e, path)
					}
					return n
				}
				if m, ok := v.(map[string]any); ok && len(path) > 0 {
					return count(m[path[0]], path[1:])
				}
				return 0
			}
			return count(v, path)
		}
	}
	for address, of := range map[string]struct {
		rows func(map[string]any) int
		svg  string // what the picture has for each
	}{
		"/metric/loss":         {list("lines", "x"), ""},
		"/timeline/step":       {list("lanes", "bars"), ""},
		"/forecast/step":       {list("points"), ""},
		"/memory/plan":         {func(v map[string]any) (n int) { return list("tiers", "bytes")(v) }, ""},
		"/map/plan":            {func(v map[string]any) int { return -1 }, ""},
		"/tradeoff/plans":      {list("points"), `<title>`},
		"/metric/device_bytes": {list("lines", "x"), ""},
	} {
		text, r := get(t, base+address+".json")
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s.json: %v", address, err)
		}
		text, _ = get(t, base+address+".csv")
		lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(lines) < 2 {
			t.Fatalf("%s.csv: %v, %d lines", address, err, len(lines))
		}
		want := of.rows(v)
		if address == "/memory/plan" { // a line for each class and change
			want = 0
			for _, tier := range v["tiers"].([]any) {
				want += len(tier.(map[string]any)["classes"].([]any)) * len(tier.(map[string]any)["changes"].([]any))
			}
		}
		if want >= 0 && len(lines)-1 != want {
			t.Errorf("%s: %d lines of CSV, %d entries of JSON", address, len(lines)-1, want)
		}
		drawing, r := get(t, base+address+".svg")
		if r.Header.Get("Content-Type") != "image/svg+xml" || !strings.Contains(drawing, "<title>") || of.svg != "" && strings.Count(drawing, of.svg) < want {
			t.Errorf("%s.svg: %.100s", address, drawing)
		}
		box := regexp.MustCompile(`viewBox="0 0 ([\d.]+) ([\d.]+)"`).FindStringSubmatch(drawing)
		var width, height float64
		fmt.Sscan(box[1], &width)
		fmt.Sscan(box[2], &height)
		for _, scheme := range []string{"", "?scheme=dark"} {
			text, r := get(t, base+address+".png"+scheme)
			picture, err := png.Decode(strings.NewReader(text))
			if err != nil || r.Header.Get("Content-Type") != "image/png" {
				t.Fatalf("%s.png: %v", address, err)
			}
			if got := picture.Bounds(); got.Dx() != int(2*width+0.99) || got.Dy() != int(2*height+0.99) {
				t.Errorf("%s.png is %v, the SVG %v x %v", address, got, width, height)
			}
		}
	}
	// Somebody who has a picture already is not sent it again.
	_, first := get(t, base+"/metric/loss.svg")
	again, err := http.NewRequest(http.MethodGet, base+"/metric/loss.svg", nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Header.Set("If-None-Match", first.Header.Get("ETag"))
	answer, err := http.DefaultClient.Do(again)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotModified {
		t.Errorf("the same picture again: %d", answer.StatusCode)
	}
}

// A PNG is what a browser makes of the SVG, but for the letters, which are another font's: few
// pixels differ, and those by how edges are smoothed.
func TestPNGIsTheSVG(t *testing.T) {
	dir, p := filepath.Join(t.TempDir(), "run"), tinyPlan(t)
	record(t, dir, 40, p, eventsOf(p))
	_, h := serve(t, Options{Runs: []string{dir}})
	ctx := browser(t) // an empty page: ours loads no pictures but the server's
	letters := regexp.MustCompile(`<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)</text>\n`)
	for _, name := range []string{"/metric/loss", "/metric/seconds", "/memory/plan", "/map/plan", "/timeline/step", "/forecast/step", "/tradeoff/plans"} {
		drawing, _ := get(t, h.URL+"/api/run/"+idOf(dir)+name+".svg")
		text, _ := get(t, h.URL+"/api/run/"+idOf(dir)+name+".png")
		ours, err := png.Decode(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		size := ours.Bounds().Size()
		source := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(letters.ReplaceAllString(drawing, "")))
		drawn := eval[string](t, ctx, fmt.Sprintf(`(async () => { const i = new Image(); i.src = %q; await i.decode(); const c = document.createElement("canvas"); c.width = %d; c.height = %d; c.getContext("2d").drawImage(i, 0, 0, c.width, c.height); return c.toDataURL().split(",")[1]; })()`, source, size.X, size.Y))
		theirs, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(drawn)))
		if err != nil {
			t.Fatal(err)
		}
		written := textAreas(letters.FindAllStringSubmatch(drawing, -1))
		compared, other := 0, 0
		for y := range size.Y {
			for x := range size.X {
				if written(x/2, y/2) {
					continue
				}
				compared++
				a, b := rgb(ours, x, y), rgb(theirs, x, y)
				for i := range a {
					if d := a[i] - b[i]; d > 48 || d < -48 {
						other++
						break
					}
				}
			}
		}
		if share := float64(other) / float64(compared); share > 0.004 || compared < size.X*size.Y/2 {
			t.Errorf("%s: %d of %d pixels are others in the browser (%.2f%%)", name, other, compared, 100*share)
		} else {
			t.Logf("%s: %d of %d pixels differ", name, other, compared)
		}
	}
}

// textAreas says where texts are, generously.
func textAreas(texts [][]string) func(x, y int) bool {
	var areas []image.Rectangle
	for _, m := range texts {
		var x, y float64
		fmt.Sscan(m[1], &x)
		fmt.Sscan(m[2], &y)
		width := 10 * float64(len(m[4]))
		left := x - 2
		switch m[3] {
		case "middle":
			left = x - width/2
		case "end":
			left = x - width
		}
		areas = append(areas, image.Rect(int(left), int(y)-18, int(left+width)+4, int(y)+6))
	}
	return func(x, y int) bool {
		for _, a := range areas {
			if (image.Point{X: x, Y: y}).In(a) {
				return true
			}
		}
		return false
	}
}

func rgb(m image.Image, x, y int) [3]int {
	r, g, b, _ := m.At(x, y).RGBA()
	return [3]int{int(r >> 8), int(g >> 8), int(b >> 8)}
}

// tinyReplan makes the plans of tinyPlan for other limits of memory.
func tinyReplan(t testing.TB) Replan {
	return func(_ context.Context, _ string, memory int64) (Replanned, error) {
		goal := tiny.AdamW(2, false)
		site := tiny.Site(memory)
		site.Kernels = devicetest.NewPlain(0)
		p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}), goal, site)
		return Replanned{Plan: p}, err
	}
}

// The slider asks the planner once it rests, shows what it answers, and the plans that were asked
// for are in the picture; a limit that is too small says what is missing. Only the page may ask.
func TestWhatIf(t *testing.T) {
	dir, p := filepath.Join(t.TempDir(), "run"), tinyPlan(t)
	record(t, dir, 10, p, eventsOf(p))
	var asked atomic.Int32
	make := tinyReplan(t)
	_, h := serve(t, Options{Runs: []string{dir}, Replan: func(ctx context.Context, dir string, memory int64) (Replanned, error) {
		asked.Add(1)
		return make(ctx, dir, memory)
	}})
	address := h.URL + "/api/run/" + idOf(dir) + "/whatif?memory="
	r, err := http.NewRequest(http.MethodPost, address+"1000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://evil.example")
	if answer, err := http.DefaultClient.Do(r); err != nil || answer.StatusCode != http.StatusForbidden || asked.Load() != 0 {
		t.Errorf("another site asks: %v %v", answer.Status, err)
	}
	for _, bad := range []string{"", "-1", "x"} {
		if answer, err := http.Post(address+bad, "", nil); err != nil || answer.StatusCode != http.StatusBadRequest {
			t.Errorf("memory %q: %v", bad, err)
		}
	}
	ctx := open(t, h.URL, "plans/"+idOf(dir))
	becomes(t, ctx, `document.getElementById("memory")`)
	// Several moves of the slider are one question.
	eval[bool](t, ctx, `(() => { const s = document.getElementById("memory"); for (const v of [10, 40, 70, 100]) { s.value = v; s.dispatchEvent(new Event("input")); } return true; })()`)
	becomes(t, ctx, `document.querySelector("#answer strong") && document.querySelector("#answer").innerText.includes("per step")`)
	if n := asked.Load(); n != 2 { // and once for the run's own limit, to compare with
		t.Errorf("the planner was asked %d times", n)
	}
	becomes(t, ctx, `document.querySelector("figure svg desc").textContent.includes("asked for")`)
	eval[bool](t, ctx, `(document.querySelector("#answer details").open = true)`)
	becomes(t, ctx, `document.querySelectorAll("figure svg").length === 2`)
	checkAccess(t, ctx, "what if")
	eval[bool](t, ctx, `(() => { const s = document.getElementById("memory"); s.value = 0; s.dispatchEvent(new Event("input")); return true; })()`)
	becomes(t, ctx, `document.querySelector("#answer").innerText.includes("No plan fits in") && document.querySelector("#answer").innerText.includes("the smallest plan needs")`)
	shot(t, ctx, "whatif")
	// Going back to a limit that was asked for asks nobody.
	before := asked.Load()
	eval[bool](t, ctx, `(() => { const s = document.getElementById("memory"); s.value = 100; s.dispatchEvent(new Event("input")); return true; })()`)
	becomes(t, ctx, `document.querySelector("#answer strong")`)
	if n := asked.Load(); n != before {
		t.Errorf("the planner was asked again")
	}
	var table struct{ Points []view.TradeoffPoint }
	text, _ := get(t, h.URL+"/api/run/"+idOf(dir)+"/tradeoff/plans.json")
	if err := json.Unmarshal([]byte(text), &table); err != nil || len(table.Points) < 2 || table.Points[0].Kind != view.OfRun || table.Points[0].Memory != p.Peak()[plan.OnDevice] {
		t.Errorf("%v: %s", err, text)
	}
}

// Logs that were cut, damaged, written by a newer version or are of a run that was killed at any
// moment are shown as far as they go, with what is wrong, next to runs that are fine.
func TestUnsoundRuns(t *testing.T) {
	dir, p := t.TempDir(), tinyPlan(t)
	good := filepath.Join(dir, "good")
	record(t, good, 40, p, eventsOf(p))
	sound, err := os.ReadFile(filepath.Join(good, eventlog.FileName))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, eventlog.FileName), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return d
	}
	changed := func(change func([]byte)) []byte {
		b := append([]byte(nil), sound...)
		change(b)
		return b
	}
	newer := changed(func(b []byte) {
		head := len("spillway events\n")
		binary.LittleEndian.PutUint32(b[head:], eventlog.Version+1)
		binary.LittleEndian.PutUint32(b[head+4:], crc32.Checksum(b[:head+4], crc32.MakeTable(crc32.Castagnoli)))
	})
	cases := []struct {
		name, says string
		bytes      []byte
	}{
		{"flipped", "is damaged at byte", changed(func(b []byte) { b[len(b)-2000] ^= 4 })},
		{"newer", "newer", newer},
		{"foreign", "is not an event log", []byte("spillway events, but not really; this is some other file")},
		{"empty", "No step is recorded yet", nil}, // its process was killed before the first record
		{"cut", "", sound[:len(sound)-777]},
	}
	// A process that is killed leaves the beginning of its log: at any byte.
	const moments = 8
	for i := range moments {
		at := len(sound) * (i + 1) / (moments + 1)
		cases = append(cases, struct {
			name, says string
			bytes      []byte
		}{fmt.Sprintf("killed-%d", i), "", sound[:at]})
	}
	dirs := []string{good}
	for _, c := range cases {
		dirs = append(dirs, write(c.name, c.bytes))
	}
	dirs = append(dirs, filepath.Join(dir, "later")) // which somebody named before it began
	_, h := serve(t, Options{Runs: dirs, Every: 300 * time.Millisecond})
	ctx := open(t, h.URL, "runs")
	becomes(t, ctx, fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d`, len(dirs)))
	list := eval[string](t, ctx, `document.body.innerText`)
	for _, want := range []string{"unreadable", "good", "killed-7", "newer", "waiting", "there is no event log yet"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %q: %s", want, list)
		}
	}
	for _, c := range cases {
		for _, name := range []string{"now", "memory", "iteration", "map", "forecast", "plans"} {
			eval[bool](t, ctx, `(delete document.documentElement.dataset.ready, location.hash = "`+name+`/`+idOf(filepath.Join(dir, c.name))+`", true)`)
			becomes(t, ctx, `document.documentElement.dataset.ready === "`+name+`"`)
			text := eval[string](t, ctx, `document.getElementById("main").innerText`)
			if name == "now" && !strings.Contains(text, c.says) || len(text) < 20 {
				t.Errorf("%s, %s: no %q in %s", c.name, name, c.says, text)
			}
			if strings.Contains(text, "undefined") || strings.Contains(text, "NaN") || strings.Contains(text, "is not a function") {
				t.Errorf("%s, %s: %s", c.name, name, text)
			}
		}
		if c.says != "" {
			shot(t, ctx, "unsound-"+c.name)
		}
	}
	eval[bool](t, ctx, `(location.hash = "now/`+idOf(good)+`", true)`)
	becomes(t, ctx, `document.body.innerText.includes("40 of 1,000") && document.querySelectorAll("figure svg").length === 4`)
}

// Cells of the map light up while instructions move, use and update what they store.
func TestMapLightsUp(t *testing.T) {
	dir, p := filepath.Join(t.TempDir(), "run"), tinyPlan(t)
	record(t, dir, 10, p, eventsOf(p))
	_, h := serve(t, Options{Runs: []string{dir}})
	var motion view.Motion
	text, _ := get(t, h.URL+"/api/run/"+idOf(dir)+"/motion")
	if err := json.Unmarshal([]byte(text), &motion); err != nil {
		t.Fatal(err)
	}
	// Every move from or to a home of params, and every update, is there, at its time.
	want := 0
	events := eventsOf(p)(13)
	for i, s := range p.Instructions {
		if s.Verb == plan.Update {
			want++
			found := false
			for _, g := range motion.Moves {
				found = found || g.Kind == view.Updated && g.Column == s.Slab && g.Start == events[i].Start && g.End == events[i].End
			}
			if !found {
				t.Errorf("the update of slab %d lights nothing up", s.Slab)
			}
		}
		if s.Verb == plan.Move && p.Buffers[s.Src].Home && p.Buffers[s.Src].Class == plan.Weight {
			want++
		}
	}
	if want == 0 || motion.Step != 3 || motion.Seconds <= 0 {
		t.Fatalf("%d moves and updates, step %d", want, motion.Step)
	}
	ctx := open(t, h.URL, "map/"+idOf(dir))
	becomes(t, ctx, `window.map && map.canvas.height > 50`) // a run that goes on is played at once
	becomes(t, ctx, `map.playing && map.lit > 0`)
	eval[bool](t, ctx, `(map.pause(), true)`)
	eval[bool](t, ctx, `(map.canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"})), map.canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"})), true)`)
	becomes(t, ctx, `map.at > 0.005 && map.at < 0.02 && !map.playing && map.lit > 0`)
	// What is lit is what happens then.
	if n := eval[int](t, ctx, `(() => { let wrong = 0; for (let i = 0; i <= 50; i++) { map.at = i / 50; map.draw(); const time = map.at * map.motion.seconds * 1e9, linger = map.motion.seconds * 1e9 / 150; const cells = new Set(map.motion.moves.filter((m) => m.start <= time && time < m.end + linger).map((m) => m.row + "," + m.column)); if (i > 0 && map.lit !== cells.size) wrong++; } return wrong; })()`); n > 0 {
		t.Errorf("other cells are lit than something happens to, %d times", n)
	}
}

// A run that generates texts is shown with what matters there.
func TestGenerationRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "texts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	w.Start(eventlog.Start{Time: time.Now(), Run: "texts", Model: "tiny", Task: "generate", Host: host, PID: os.Getpid()})
	site := tiny.Site(1 << 20)
	site.Kernels = devicetest.NewPlain(0)
	p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Infer}), planner.Goal{MicroBatches: 1}, site)
	if err != nil {
		t.Fatal(err)
	}
	p.Phases, p.Cache = []plan.Phase{{Name: plan.Step(1), Instructions: p.Instructions}}, &graph.KVCache{Streams: 4, Context: 64}
	w.Plan(0, p)
	events := eventsOf(p)
	w.Trace(eventlog.Trace{Forecast: true, Events: events(10)})
	w.Trace(eventlog.Trace{Forecast: true, Phase: plan.Step(1), Events: events(10)})
	w.Trace(eventlog.Trace{Step: 5, Phase: plan.Step(1), Events: events(12)})
	for n := range int64(30) {
		g := eventlog.Generation{Step: n + 1, Steps: 1, Seconds: 0.01, DecodeSeconds: 0.01, NewTokens: 4, TotalNew: 4 * n, TotalPrompt: 512, Sequences: 4, Waiting: 1, Finished: 2, PagesUsed: 10 + n, Pages: 100, PageTokens: 16,
			CacheBytes: (10 + n) << 20, Forecast: 0.008, Bound: 1, MeasuredBytes: 3 << 20, UnixNano: time.Now().UnixNano()}
		if n == 0 {
			g.PromptTokens, g.PrefillSeconds, g.DecodeSeconds = 512, 0.25, 0
		}
		w.Generation(&g)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// With half of the memory tokens take twice as long.
	forecast := func(memory int64) *run.GenerationForecast {
		took := 0.01
		if memory < limitOf(p) {
			took = 0.02
		}
		step := func(n float64) run.StepForecast {
			return run.StepForecast{Seconds: took, TokensPerSec: n / took, Bound: "memory"}
		}
		return &run.GenerationForecast{Context: 64, Streams: 4, PromptTokens: 64, PromptSeconds: 0.5, Decode: []run.DecodeForecast{{Streams: 1, Half: step(1)}, {Streams: 4, Half: step(4)}}}
	}
	_, h := serve(t, Options{Runs: []string{dir}, Replan: func(_ context.Context, _ string, memory int64) (Replanned, error) {
		return Replanned{Plan: p, Generation: forecast(memory)}, nil
	}})
	ctx := open(t, h.URL, "now/"+idOf(dir))
	becomes(t, ctx, `document.documentElement.dataset.ready === "now" && document.querySelectorAll("figure svg").length === 4`)
	text := eval[string](t, ctx, `document.body.innerText`)
	for _, want := range []string{"new tokens/s\n400", "prompt tokens/s\n2,048", "39 of 100 pages, 39.0 MiB", "1 wait, 2 finished", "1.25", "116 so far"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	shot(t, ctx, "generation")
	checkAccess(t, ctx, "generation")
	for name, shows := range map[string]string{"memory": `document.querySelectorAll("main select option").length === 2`, "iteration": `window.gantt && gantt.rows.length > 0 && document.body.innerText.includes("step of 1")`,
		"runs": `document.body.innerText.includes("400")`} {
		eval[bool](t, ctx, `location.hash = "#`+name+`/`+idOf(dir)+`", true`)
		becomes(t, ctx, `document.documentElement.dataset.ready === "`+name+`" && `+shows)
	}
	// The slider says how fast tokens would come, and where the weights would be.
	eval[bool](t, ctx, `location.hash = "#plans/`+idOf(dir)+`", true`)
	becomes(t, ctx, `document.documentElement.dataset.ready === "plans" && document.getElementById("memory") && document.querySelector("figure svg")`)
	if empty := eval[string](t, ctx, `document.querySelector("figure svg").textContent`); !strings.Contains(empty, "no plan was asked for yet") || !strings.Contains(empty, "time per token") {
		t.Errorf("%s", empty)
	}
	eval[bool](t, ctx, `(() => { const s = document.getElementById("memory"); s.value = 0; s.dispatchEvent(new Event("input")); return true; })()`)
	becomes(t, ctx, `document.querySelector("#answer strong")?.innerText === "50 tokens/s"`)
	text = eval[string](t, ctx, `document.getElementById("answer").innerText`)
	for _, want := range []string{"a token takes 2.00 × as long as with the limit of the run", "limited by memory", "4 texts at once: 200 tokens/s", "500 ms after a prompt of 64", "weights on device"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	becomes(t, ctx, `document.querySelector("figure svg desc").textContent.includes("asked for") && document.querySelector("figure svg desc").textContent.includes("of the run")`)
	shot(t, ctx, "whatif-generation")
	checkAccess(t, ctx, "what if, generation")
}

// What repeats is shown once, and can be opened; no instruction of the rest is lost.
func TestRepeatedParts(t *testing.T) {
	const blocks = 80
	var list []trace.Event
	at := int64(0)
	add := func(name string, verb trace.Verb, queue string, start, took, size int64) {
		list = append(list, trace.Event{Verb: verb, Name: name, Lane: trace.Lane{Device: "gpu0", Queue: queue}, Start: start, End: start + took, Bytes: size})
	}
	add("embedding forward", trace.Run, "compute", at, 500, 0)
	at = 500
	for b := range int64(blocks) {
		add(fmt.Sprintf("layers.%d weights", b), trace.Move, "in", at, 800, 1<<20)
		add("layers forward", trace.Run, "compute", at, 1000, 0)
		at += 1000
	}
	add("head training", trace.Run, "compute", at, 3000, 0)
	line, err := view.TimelineOf(1, list, list)
	if err != nil {
		t.Fatal(err)
	}
	if len(line.Folds) != 1 || line.Folds[0].Hidden != blocks-3 || line.Folds[0].To-line.Folds[0].From != (blocks-3)*1000 {
		t.Fatalf("%+v", line.Folds)
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	record(t, dir, 5, tinyPlan(t), func(int64) []trace.Event { return list })
	_, h := serve(t, Options{Runs: []string{dir}})
	ctx := open(t, h.URL, "iteration/"+idOf(dir))
	becomes(t, ctx, `window.gantt && gantt.drawn > 0`)
	_ = text
	rows := `gantt.rows.filter((r) => r.name === "gpu0 compute")[0]`
	if n := eval[int](t, ctx, rows+`.bars.length`); !eval[bool](t, ctx, `gantt.folded`) || n != 2+3 {
		t.Errorf("%d bars are shown", n)
	}
	eval[bool](t, ctx, `(document.querySelector("button[aria-pressed]").click(), true)`)
	if n := eval[int](t, ctx, rows+`.bars.length`); n != 2+blocks || eval[string](t, ctx, `document.querySelector("button[aria-pressed]").getAttribute("aria-pressed")`) != "false" {
		t.Errorf("%d bars are shown of all", n)
	}
	if drawing := line.Picture().SVG(); strings.Count(drawing, "<rect") > 40 || !strings.Contains(drawing, "77 equal parts are left out: 77 µs by the forecast") {
		t.Errorf("the picture has %d rectangles", strings.Count(drawing, "<rect"))
	}
}
