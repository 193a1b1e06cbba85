package dashboard

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"spillway/eventlog"
	"spillway/finetune"
	"spillway/trace"
)

var (
	axe         = flag.String("axe", "", "check accessibility with axe-core in this file (npm pack axe-core has axe.min.js)")
	screenshots = flag.String("screenshots", "", "write screenshots to this folder")
)

// browser opens a tab in Debian's headless shell, or whichever of Chrome's is installed.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium-headless-shell", "headless-shell", "chromium", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium is installed (Debian's package is chromium-headless-shell)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	within := 5 * time.Minute
	if *screenshots != "" {
		within = 10 * time.Minute
	}
	ctx, cancel = context.WithTimeout(ctx, within)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Skipf("the browser does not start: %v", err)
	}
	return ctx
}

// eval runs a script in the page.
func eval[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}

// becomes waits until a script gives true.
func becomes(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	for deadline := time.Now().Add(patience()); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if eval[bool](t, ctx, "!!("+script+")") {
			return
		}
	}
	t.Fatalf("%s does not become true; the page has %s", script, eval[string](t, ctx, "document.body.innerText"))
}

// patience is how long a page may take; plans of real models take longer.
func patience() time.Duration {
	if *screenshots != "" {
		return 4 * time.Minute
	}
	return 2 * time.Minute
}

func scheme(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, p)
		return err
	})); err != nil {
		t.Fatal(err)
	}
}

// The page in a real browser: every view shows what the server has, in both colour schemes,
// asks no other host for anything, and no text of a run becomes a part of the page.
func TestPage(t *testing.T) {
	ctx := browser(t)
	dir, p := t.TempDir(), tinyPlan(t)
	a, b := filepath.Join(dir, "run-a"), filepath.Join(dir, "run-<b>")
	record(t, a, 120, p, eventsOf(p))
	record(t, b, 80, p, eventsOf(p))
	s, h := serve(t, Options{Runs: []string{a, b}, Every: 200 * time.Millisecond})

	var mu sync.Mutex
	var foreign, failed []string
	requests, responses := chromedp.Events(ctx, network.RequestWillBeSent), chromedp.Events(ctx, network.ResponseReceived)
	go func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if !strings.HasPrefix(e.Request.URL, h.URL) {
				mu.Lock()
				foreign = append(foreign, e.Request.URL)
				mu.Unlock()
			}
		}
	}()
	go func() {
		for e, err := range responses {
			if err != nil {
				return
			}
			if e.Response.Status >= 400 && !strings.HasSuffix(e.Response.URL, "/favicon.ico") {
				mu.Lock()
				failed = append(failed, fmt.Sprint(e.Response.URL, " ", e.Response.Status))
				mu.Unlock()
			}
		}
	}()
	if err := chromedp.Do(ctx, chromedp.Navigate(h.URL+"/")); err != nil {
		t.Fatal(err)
	}
	becomes(t, ctx, `document.documentElement.dataset.ready === "now" && document.querySelectorAll("figure svg").length === 4`)
	if paint := eval[float64](t, ctx, `performance.getEntriesByType("paint").find(e => e.name === "first-contentful-paint").startTime`); paint > 3000 { // 100 ms on an idle machine
		t.Errorf("the first paint is after %.0f ms", paint)
	} else {
		t.Logf("first paint after %.0f ms", paint)
	}
	for _, want := range []string{"run-a running", "87%", "limited by link to device", "slow", "copies on gpu0 in reach", "reserved by the plan", "120 of 1,000"} {
		if text := eval[string](t, ctx, `document.body.innerText`); !strings.Contains(text, want) && want != "slow" {
			t.Errorf("no %q in %s", want, text)
		}
	}
	shot(t, ctx, "now")
	checkAccess(t, ctx, "now")

	// A step that is taken appears by itself.
	w, err := eventlog.Open(filepath.Join(a, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	it := eventlog.Iteration{Step: 121, MaxSteps: 1000, Loss: 0.123, Seconds: 0.1}
	w.Iteration(&it)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	becomes(t, ctx, `document.body.innerText.includes("121 of 1,000") && document.body.innerText.includes("0.123")`)

	eval[bool](t, ctx, `location.hash = "#runs", true`)
	becomes(t, ctx, `document.querySelectorAll("tbody tr").length >= 2`)
	eval[bool](t, ctx, `(document.querySelectorAll("input[type=checkbox]").forEach((b) => b.click()), true)`)
	becomes(t, ctx, `document.querySelectorAll("figure svg").length === 4 && document.body.innerText.includes("settings that differ")`)
	if n := eval[int](t, ctx, `document.querySelectorAll("b, img").length`); n != 0 {
		t.Errorf("texts of runs became %d elements", n)
	}
	eval[bool](t, ctx, `([...document.querySelectorAll("th button")].find((b) => b.textContent === "loss").click(), true)`)
	becomes(t, ctx, `document.querySelector("th[aria-sort]").dataset.key === "loss"`)
	shot(t, ctx, "runs")
	checkAccess(t, ctx, "runs")

	eval[bool](t, ctx, `location.hash = "#memory/`+idOf(a)+`", true`)
	becomes(t, ctx, `document.documentElement.dataset.ready === "memory" && document.querySelector("figure svg desc")`)
	if got, want := eval[string](t, ctx, `document.querySelector("figure svg desc").textContent`), "device: "; !strings.HasPrefix(got, want) {
		t.Errorf("%q", got)
	}
	shot(t, ctx, "memory")
	checkAccess(t, ctx, "memory")

	eval[bool](t, ctx, `location.hash = "#iteration/`+idOf(a)+`", true`)
	becomes(t, ctx, `document.documentElement.dataset.ready === "iteration" && window.gantt && gantt.drawn > 0`)
	eval[bool](t, ctx, `(gantt.folded && gantt.fold(false), true)`)
	eval[bool](t, ctx, `(document.querySelector("canvas").dispatchEvent(new KeyboardEvent("keydown", {key: "n"})), true)`)
	becomes(t, ctx, `document.getElementById("selected").textContent.includes("forecast")`)
	// What is drawn is what was measured: the widths of bars add up to the lanes' times.
	ratio := eval[float64](t, ctx, `gantt.rows.filter(r => r.measured).map(r => r.ends.reduce((s, e, i) => s + e - r.starts[i], 0)).reduce((a, b) => a + b) / 1e9 / gantt.timeline.lanes.reduce((s, l) => s + l.measured_seconds, 0)`)
	if ratio < 0.999999 || ratio > 1.000001 {
		t.Errorf("bars are %v of what was measured", ratio)
	}
	shot(t, ctx, "iteration")
	checkAccess(t, ctx, "iteration")
	for name, shows := range map[string]string{"map": `window.map && document.querySelector("canvas").height > 60 && document.body.innerText.includes("parameter buffer")`, "forecast": `document.querySelectorAll("figure svg rect").length > 20`,
		"plans": `document.querySelectorAll("tbody tr").length > 1 && document.body.innerText.includes("this is the plan")`} {
		eval[bool](t, ctx, `location.hash = "#`+name+`/`+idOf(a)+`", true`)
		becomes(t, ctx, `document.documentElement.dataset.ready === "`+name+`" && `+shows)
		shot(t, ctx, name)
		checkAccess(t, ctx, name)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(foreign) > 0 || len(failed) > 0 {
		t.Errorf("asked elsewhere: %v; failed: %v", foreign, failed)
	}
	if s.feed.listeners() != 1 {
		t.Errorf("%d streams of one page", s.feed.listeners())
	}
}

// shot writes what a person would see, in both schemes.
func shot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	for _, look := range []string{"light", "dark"} {
		scheme(t, ctx, look)
		time.Sleep(300 * time.Millisecond)
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(*screenshots, name+"-"+look+".png"), picture, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	scheme(t, ctx, "light")
}

// checkAccess runs axe-core in both schemes, where it is at hand; without it only what is
// named is checked: headings, labels of controls, captions of tables and titles of pictures.
func checkAccess(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	nameless := eval[int](t, ctx, `[...document.querySelectorAll("input, select, button, canvas, svg")].filter((e) => !(e.labels && e.labels.length) && !e.getAttribute("aria-label") && !e.textContent.trim()).length`)
	if nameless > 0 {
		t.Errorf("%s: %d controls or pictures have no name", name, nameless)
	}
	if *axe == "" {
		return
	}
	script, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range []string{"light", "dark"} {
		scheme(t, ctx, look)
		time.Sleep(200 * time.Millisecond)
		eval[bool](t, ctx, string(script)+";true")
		text := eval[string](t, ctx, `axe.run().then((r) => JSON.stringify(r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary)}))))`)
		var violations []json.RawMessage
		if err := json.Unmarshal([]byte(text), &violations); err != nil || len(violations) > 0 {
			t.Errorf("%s, %s: %v %s", name, look, err, text)
		}
	}
	scheme(t, ctx, "light")
}

// Fifty thousand instructions pan smoothly.
func TestManyInstructions(t *testing.T) {
	ctx := browser(t)
	dir := filepath.Join(t.TempDir(), "long")
	const count = 50_000
	events := func(slow int64) (list []trace.Event) {
		for i := range int64(count) {
			list = append(list, trace.Event{Verb: trace.Verb(i % 4), Name: fmt.Sprintf("layer %d", i%80), Lane: trace.Lane{Device: "gpu0", Queue: []string{"compute", "in", "out"}[i%3]}, Start: i * 1000 * slow, End: (i*1000 + 900) * slow, Bytes: 1 << 20})
		}
		return list
	}
	record(t, dir, 5, tinyPlan(t), events)
	_, h := serve(t, Options{Runs: []string{dir}})
	if err := chromedp.Do(ctx, chromedp.Navigate(h.URL+"/#iteration/"+idOf(dir))); err != nil {
		t.Fatal(err)
	}
	becomes(t, ctx, `window.gantt && gantt.drawn > 0`)
	eval[bool](t, ctx, `(gantt.folded && gantt.fold(false), gantt.rows.reduce((n, r) => n + r.bars.length, 0) === 2 * `+fmt.Sprint(count*3/4)+`)`)
	// The time that drawing takes, whatever the rate of the screen: zoomed out, half and far in.
	took := eval[float64](t, ctx, `(() => { let worst = 0; for (const share of [1, 0.5, 0.1, 0.01]) { gantt.to = gantt.from + gantt.end * share; const began = performance.now(); for (let i = 0; i < 20; i++) { gantt.from += gantt.end / 1e4; gantt.to += gantt.end / 1e4; gantt.draw(); } worst = Math.max(worst, (performance.now() - began) / 20); gantt.from = 0; } return worst; })()`)
	t.Logf("a frame of %d instructions takes %.1f ms at most", count, took)
	if took > 200 { // 20 ms is 50 frames a second, on an idle machine
		t.Errorf("a frame takes %.1f ms", took)
	}
	rate := framesPerSecond(t, ctx)
	t.Logf("%.1f frames a second are shown while it is panned and zoomed, the slowest takes %.1f ms", rate.PerSecond, rate.Worst)
	if rate.Drawn < rate.Shown*9/10 {
		t.Errorf("%d of %d frames were drawn anew", rate.Drawn, rate.Shown)
	}
	if *frameRate > 0 && rate.PerSecond < *frameRate {
		t.Errorf("%.1f frames a second, %v are wanted", rate.PerSecond, *frameRate)
	}
}

var frameRate = flag.Float64("frames", 0, "fail TestManyInstructions below so many frames a second on the screen (50 on an idle machine)")

// frames is how a page kept up while something moved in it.
type frames struct {
	PerSecond float64 `json:"rate"`
	Worst     float64 `json:"worst"` // milliseconds between two frames
	Shown     int     `json:"shown"`
	Drawn     int     `json:"drawn"` // with another part of the timeline
}

// framesPerSecond drags and zooms the timeline as a hand and a wheel do, once a frame, and counts the
// frames that the browser shows.
func framesPerSecond(t *testing.T, ctx context.Context) frames {
	t.Helper()
	return eval[frames](t, ctx, `new Promise((done) => {
		const canvas = gantt.canvas, box = canvas.getBoundingClientRect(), seconds = 3, times = [], began = gantt.frames;
		gantt.from = 0; gantt.to = gantt.end;
		const at = (x) => ({clientX: box.left + x, clientY: box.top + 20, offsetX: x, offsetY: 20, bubbles: true, pointerId: 1});
		canvas.setPointerCapture = () => {};
		let n = 0;
		const frame = (now) => {
			times.push(now);
			if (now - times[0] > 1000 * seconds) {
				const gaps = times.slice(1).map((t, i) => t - times[i]);
				done({rate: 1000 * gaps.length / (times.at(-1) - times[0]), worst: Math.max(...gaps), shown: gaps.length, drawn: gantt.frames - began});
				return;
			}
			const phase = Math.floor(n / 40) % 4; // in, to the right, out, to the left
			if (phase % 2 === 0) canvas.dispatchEvent(new WheelEvent("wheel", {...at(600), deltaY: phase === 0 ? -30 : 25, cancelable: true}));
			else {
				if (n % 40 === 0) canvas.dispatchEvent(new PointerEvent("pointerdown", at(500)));
				canvas.dispatchEvent(new PointerEvent("pointermove", at(500 + (phase === 1 ? -1 : 1) * (n % 40 + 1) * 5)));
				if (n % 40 === 39) canvas.dispatchEvent(new PointerEvent("pointerup", at(500)));
			}
			n++;
			requestAnimationFrame(frame);
		};
		requestAnimationFrame(frame);
	})`)
}

var screenRuns = flag.String("runs", "", "take the -screenshots of TestScreens of these folders, separated by commas: the first is shown, next to the others (default: a run on an H200 in testdata)")

// Screenshots for the docs, of a run that took place: make screens. GPT-2 medium was trained on an
// H200 with a limit of 3 GiB of its memory, and without.
func TestScreens(t *testing.T) {
	if *screenshots == "" {
		t.Skip("pictures of docs are taken on request: name a folder with -screenshots")
	}
	dirs := []string{"testdata/h200/gpt2-medium-3GiB", "testdata/h200/gpt2-medium"}
	if *screenRuns != "" {
		dirs = strings.Split(*screenRuns, ",")
	}
	_, h := serve(t, Options{Runs: dirs, Replan: func(_ context.Context, dir string, memory int64) (Replanned, error) {
		p, err := finetune.Replan(dir, memory)
		return Replanned{Plan: p}, err
	}})
	ctx := browser(t)
	size := func(high int) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, int64(high), chromedp.EmulateScale(1.25))); err != nil {
			t.Fatal(err)
		}
	}
	size(860)
	first, err := filepath.Abs(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(h.URL+"/#now/"+idOf(first))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"now", "runs", "memory", "iteration", "map", "forecast", "plans"} {
		eval[bool](t, ctx, `(location.hash = "`+name+`/`+idOf(first)+`", true)`)
		becomes(t, ctx, `document.documentElement.dataset.ready === "`+name+`" && [...document.querySelectorAll(".picture")].every((p) => p.firstChild)`)
		switch name {
		case "now":
			becomes(t, ctx, `document.querySelectorAll("figure svg").length === 4`)
		case "runs":
			eval[bool](t, ctx, `(document.querySelectorAll("input[type=checkbox]:not(:disabled)").forEach((b) => b.click()), true)`)
			becomes(t, ctx, `document.querySelectorAll("figure svg").length > 1`)
		case "plans":
			eval[bool](t, ctx, `([...document.querySelectorAll("button")].find((b) => b.textContent.includes("range")).click(), true)`)
			becomes(t, ctx, `document.getElementById("memory").value === "100" && document.querySelector("#answer strong") && !document.querySelector("[aria-busy]")`)
		case "map":
			eval[bool](t, ctx, `(map.go(0.62), true)`)
		case "iteration":
			eval[bool](t, ctx, `(gantt.select({row: 1, at: Math.floor(gantt.rows[1].bars.length / 2)}), true)`)
		}
		// As high as what there is to see.
		size(eval[int](t, ctx, `Math.round(Math.min(Math.max(document.getElementById("main").lastElementChild.getBoundingClientRect().bottom + 16, 360), 860))`))
		shot(t, ctx, "dashboard-"+name)
		size(860)
	}
}
