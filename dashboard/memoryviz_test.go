package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"

	"spillway/plan"
	"spillway/view"
)

var memoryViz = flag.String("memoryviz", "", "a folder with PyTorch's MemoryViz.js (torch/utils/viz in its repository) and d3.js, an ES module with all of D3 (npm's d3, bundled)")

// PyTorch's own viewer, unmodified, opens the memory of a plan: it draws every tier as a device,
// with as many bytes as the plan has and every buffer in its place.
func TestMemoryVizOpensOurs(t *testing.T) {
	if *memoryViz == "" {
		t.Skip("no -memoryviz is given: the viewer is PyTorch's, and is not in this repository")
	}
	script, err := os.ReadFile(filepath.Join(*memoryViz, "MemoryViz.js"))
	if err != nil {
		t.Fatal(err)
	}
	// The viewer takes D3 from another host; here that is a file.
	imports := map[string]string{}
	for _, m := range regexp.MustCompile(`from "(https://[^"]+)"`).FindAllSubmatch(script, -1) {
		imports[string(m[1])] = "/d3.js"
	}
	table, err := json.Marshal(map[string]any{"imports": imports})
	if err != nil {
		t.Fatal(err)
	}
	p := tinyPlan(t)
	var snapshot bytes.Buffer
	if err := view.WriteMemorySnapshot(&snapshot, p); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(*memoryViz)))
	mux.HandleFunc("/snapshot.pickle", func(w http.ResponseWriter, _ *http.Request) { w.Write(snapshot.Bytes()) })
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><html><body><script>window.failed = []; addEventListener("error", (e) => failed.push(e.message)); addEventListener("unhandledrejection", (e) => failed.push(String(e.reason)));</script>
<script type="importmap">%s</script><script type="module">import {add_remote_files} from "/MemoryViz.js"; add_remote_files([{name: "ours", url: "/snapshot.pickle"}]); window.added = true;</script></body></html>`, table)
	})
	h := httptest.NewServer(mux)
	defer h.Close()
	ctx := browser(t)
	if err := chromedp.Do(ctx, chromedp.Navigate(h.URL+"/page")); err != nil {
		t.Fatal(err)
	}
	becomes(t, ctx, `window.failed.length > 0 || window.added && document.querySelectorAll("svg").length > 0`)
	choose := func(text string) {
		t.Helper()
		if !eval[bool](t, ctx, `(() => { for (const s of document.querySelectorAll("select")) for (const o of s.options) if (o.text.includes("`+text+`")) { s.value = o.value; s.selectedIndex = o.index; s.dispatchEvent(new Event("change")); return true; } return false; })()`) {
			t.Errorf("the viewer offers no %q: %s", text, eval[string](t, ctx, `[...document.querySelectorAll("option")].map((o) => o.text).join()`))
		}
	}
	for _, kind := range []string{"Active Memory Timeline", "Allocator State History", "Allocator Settings"} {
		choose(kind)
		if failed := eval[[]string](t, ctx, `window.failed`); len(failed) > 0 {
			t.Fatalf("%s: the viewer says %v", kind, failed)
		}
		if kind == "Active Memory Timeline" {
			becomes(t, ctx, `document.querySelectorAll("svg polygon").length > 3`)
			shot(t, ctx, "memoryviz")
		}
		if kind == "Allocator State History" {
			becomes(t, ctx, `document.querySelectorAll("pre").length > 10`)
			// Its events are the lives of our buffers on the device.
			var most int64
			for _, tier := range view.MemoryOf(p).Tiers {
				if tier.Tier == plan.OnDevice {
					most = tier.Reserved
				}
			}
			if text := eval[string](t, ctx, `document.body.innerText`); !regexp.MustCompile(fmt.Sprintf(`\(%d bytes\)`, most)).MatchString(text) {
				t.Errorf("the device's %d bytes are not among the events: %.2000s", most, text)
			}
		}
	}
	if failed := eval[[]string](t, ctx, `window.failed`); len(failed) > 0 {
		t.Errorf("the viewer says %v", failed)
	}
}
