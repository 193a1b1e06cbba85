package dashboard

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
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

func tinyPlan(t testing.TB) *plan.Plan {
	t.Helper()
	goal := tiny.AdamW(2, false)
	goal.Constraints.Updates = strategy.ByCPU
	site := tiny.Site(1 << 20)
	site.Kernels = devicetest.NewPlain(0)
	p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}), goal, site)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// record writes the log of a run of some steps.
func record(t testing.TB, dir string, steps int, p *plan.Plan, events func(slow int64) []trace.Event) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	w.Start(eventlog.Start{Time: time.Now(), Run: filepath.Base(dir), Model: "tiny", Host: host, PID: os.Getpid(), MaxSteps: 1000})
	w.Settings([]eventlog.Setting{{Name: "learning-rate", Value: filepath.Base(dir)}, {Name: "evil", Value: "<img src=x onerror=alert(1)>"}})
	if p != nil {
		w.Plan(0, p)
		w.Trace(eventlog.Trace{Forecast: true, Events: events(10)})
		w.Trace(eventlog.Trace{Step: 3, Events: events(13)})
	}
	for n := range steps {
		it := eventlog.Iteration{Step: int64(n + 1), MaxSteps: 1000, Loss: 1.5 + 3/(1+float64(n)/20), LR: 1e-4, Seconds: 0.1 + 0.01*float64(n%7), TokensPerSecond: 1280, Forecast: 0.09, GradNorm: 1 / float64(n+1),
			MeasuredBytes: 425 << 10, PredictedBytes: 425 << 10, StateBytes: 1 << 20, ShareOfRoofline: 0.87, Bound: 2, ETA: 5000, UnixNano: time.Now().UnixNano()}
		if n%10 == 9 {
			it.EvalLoss = it.Loss + 0.1
		}
		w.Iteration(&it)
	}
	w.Alert(eventlog.Alert{Step: 2, Level: eventlog.Warning, Name: "slow-link", Text: "copies on gpu0 in reach 6.1 GB/s, the forecast has 12.3 GB/s"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// eventsOf gives instructions of a plan times, one after the other on each lane.
func eventsOf(p *plan.Plan) func(slow int64) []trace.Event {
	return func(slow int64) (list []trace.Event) {
		verbs := map[plan.Verb]trace.Verb{plan.Move: trace.Move, plan.Run: trace.Run, plan.Reduce: trace.Reduce, plan.Update: trace.Update, plan.Free: trace.Free}
		at := map[trace.Lane]int64{}
		for i, s := range p.Instructions {
			lane := trace.Lane{Device: p.Devices[s.Device].Name, Queue: string(s.Lane)}
			took := slow * int64(100_000+i%7*10_000)
			list = append(list, trace.Event{Verb: verbs[s.Verb], Name: fmt.Sprintf("block %d", s.Block), Lane: lane, Start: at[lane], End: at[lane] + took, Bytes: int64(i) << 16, Block: s.Block, MicroBatch: s.MicroBatch})
			at[lane] += took
		}
		return list
	}
}

// serve starts a server over runs in folders.
func serve(t testing.TB, o Options) (*Server, *httptest.Server) {
	t.Helper()
	s := New(o)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h
}

func get(t testing.TB, address string) (string, *http.Response) {
	t.Helper()
	r, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), r
}

// Every view has its numbers and its picture, equal to what the library gives, also next to a
// run whose log is damaged.
func TestViews(t *testing.T) {
	dir, p := t.TempDir(), tinyPlan(t)
	a, b, bad := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "bad")
	record(t, a, 40, p, eventsOf(p))
	record(t, b, 30, nil, nil)
	record(t, bad, 3, nil, nil)
	if err := os.WriteFile(filepath.Join(bad, eventlog.FileName), []byte("spillway events\nbut not really"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, h := serve(t, Options{Runs: []string{a, b, bad}})
	text, r := get(t, h.URL+"/api/state")
	var st State
	if err := json.Unmarshal([]byte(text), &st); err != nil || len(st.Runs) != 3 || st.Runs[2].Error == "" || st.Runs[0].Last.Step != 40 {
		t.Fatalf("%v: %s", err, text)
	}
	if got := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'self'") {
		t.Errorf("the policy is %q", got)
	}
	run, err := view.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	loss, err := view.FindMetric("loss")
	if err != nil {
		t.Fatal(err)
	}
	line, err := run.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	id := st.Runs[0].ID
	for address, want := range map[string]string{
		"/api/run/" + id + "/metric/loss.svg":   view.Curves([]*view.Run{run}, loss, view.DefaultPoints).Picture().SVG(),
		"/api/run/" + id + "/memory/plan.svg":   view.MemoryOf(p).Measured(run).Picture().SVG(),
		"/api/run/" + id + "/timeline/step.svg": line.Picture().SVG(),
	} {
		if got, _ := get(t, h.URL+address); got != want {
			t.Errorf("%s is another picture: %.200s", address, got)
		}
	}
	var m view.Memory
	text, _ = get(t, h.URL+"/api/run/"+id+"/memory/plan.json")
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Tiers[0].Reserved != p.Peak()[plan.OnDevice] {
		t.Errorf("%v: %.200s", err, text)
	}
	both := "?run=" + id + "&run=" + st.Runs[1].ID
	for address, want := range map[string]string{
		"/api/run/" + id + "/now":                `"state":"running"`,
		"/api/run/" + id + "/metric/loss.csv":    "run,step,loss\n",
		"/api/run/" + id + "/timeline/step.json": `"lanes":[{"device":"gpu0"`,
		"/api/compare/all.json" + both:           `"name":"learning-rate","values":[`,
		"/api/compare/loss.svg" + both:           "<svg",
		"/metrics":                               `spillway_run_loss{run="a",model="tiny",bound="link to device"}`,
		"/":                                      "<title>spillway</title>",
		"/app.js":                                "EventSource",
		"/gantt.js":                              "class Gantt",
		"/style.css":                             "--c-weight",
	} {
		if got, r := get(t, h.URL+address); r.StatusCode != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("%s: %d, no %q in %.300s", address, r.StatusCode, want, got)
		}
	}
	for address, status := range map[string]int{
		"/api/run/nothing/now": 404, "/api/run/" + id + "/metric/speed.svg": 500, "/api/run/" + st.Runs[1].ID + "/memory/plan.svg": 404, "/api/compare/all.json": 400,
		"/etc/passwd": 404, "/page/app.js": 404, "/api/run/" + id + "/memory/plan.exe": 404, "/api/run/" + st.Runs[2].ID + "/now": 500,
	} {
		if text, r := get(t, h.URL+address); r.StatusCode != status {
			t.Errorf("%s: %d, want %d: %s", address, r.StatusCode, status, text)
		}
	}
}

// Another site cannot use the page: not by a name that leads here, not by a form, and not from
// another computer without the token.
func TestWhoMayAsk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	record(t, dir, 3, nil, nil)
	_, h := serve(t, Options{Runs: []string{dir}})
	status := func(h *httptest.Server, change func(*http.Request)) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, h.URL+"/api/run/"+idOf(dir)+"/trace", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := status(h, func(r *http.Request) { r.Host = "evil.example" }); got != http.StatusForbidden {
		t.Errorf("another name: %d", got)
	}
	if got := status(h, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }); got != http.StatusForbidden {
		t.Errorf("another site: %d", got)
	}
	if got := status(h, func(r *http.Request) { r.Header.Set("Origin", h.URL) }); got != http.StatusOK {
		t.Errorf("the page itself: %d", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "trace.request")); err != nil {
		t.Error(err)
	}
	_, guarded := serve(t, Options{Runs: []string{dir}, Token: "secret"})
	if got := status(guarded, func(*http.Request) {}); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	if got := status(guarded, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret"); r.Host = "box.example" }); got != http.StatusOK {
		t.Errorf("with a token: %d", got)
	}
	if got := status(guarded, func(r *http.Request) { r.URL.RawQuery = "token=secrex" }); got != http.StatusUnauthorized {
		t.Errorf("with another token: %d", got)
	}
	for address, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "0.0.0.0:1": false, "[::]:80": false, "10.0.0.1:5": false, ":80": false} {
		if Loopback(address) != want {
			t.Errorf("%s: loopback is %v", address, !want)
		}
	}
}

// A hundred pages that do not read hold nobody up: those that read get every second's state,
// and the server closes.
func TestStalledClients(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	record(t, dir, 3, nil, nil)
	s, h := serve(t, Options{Runs: []string{dir}, Every: 10 * time.Millisecond})
	for range 100 {
		c, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", h.Listener.Addr())
	}
	for s.feed.listeners() < 100 {
		time.Sleep(time.Millisecond)
	}
	r, err := http.Get(h.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for got := 0; got < 20 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var st State
			if err := json.Unmarshal([]byte(text), &st); err != nil || st.Whole != (got == 0) || len(st.Runs) != map[bool]int{true: 1}[st.Whole] {
				t.Fatalf("message %d: %v: %s", got, err, text)
			}
			got++
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// All that a browser loads is small.
func TestPageWeight(t *testing.T) {
	var total int
	err := fs.WalkDir(files, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		var packed strings.Builder
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		total += packed.Len()
		for _, bad := range []string{"http://", "https://", "eval("} {
			if strings.Contains(strings.ReplaceAll(string(text), `xmlns="http://www.w3.org/2000/svg"`, ""), bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		return nil
	})
	if err != nil || total > 120<<10 {
		t.Errorf("%d bytes, %v", total, err)
	}
	t.Logf("the page is %d bytes in gzip", total)
}

// A thousand runs are listed without reading them: what is damaged in the middle of a log is not even seen.
func TestManyRuns(t *testing.T) {
	dir := t.TempDir()
	first := filepath.Join(dir, "0")
	record(t, first, 3000, nil, nil)
	log, err := os.ReadFile(filepath.Join(first, eventlog.FileName))
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged")
	text := slices.Clone(log)
	text[len(log)/2] ^= 16
	if err := os.WriteFile(damaged, text, 0o644); err != nil {
		t.Fatal(err)
	}
	dirs := []string{first}
	const changes = 500
	for n := range 999 {
		d := filepath.Join(dir, fmt.Sprint(n+1))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(d, eventlog.FileName)
		err := os.Link(damaged, path) // a gigabyte else
		if n+1 == changes {
			err = errors.Join(os.Remove(path), os.WriteFile(path, log, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, d)
	}
	s, _ := serve(t, Options{Runs: dirs})
	began := time.Now()
	list := s.roll.all()
	took := time.Since(began)
	t.Logf("%d runs of 3,000 steps are listed in %v", len(list), took)
	// Later only what changed is read and sent: a run that takes a step, one that appears.
	s.feed.announce(s.computer())
	all, version, err := s.feed.message(&s.roll, 0)
	if err != nil {
		t.Fatal(err)
	}
	appendStep(t, dirs[changes], 3001)
	began = time.Now()
	s.roll.look()
	again := time.Since(began)
	s.feed.announce(s.computer())
	text, _, err = s.feed.message(&s.roll, version)
	var st State
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil || st.Whole || len(st.Runs) != 1 || st.Runs[0].Last.Step != 3001 || len(text) > len(all)/300 {
		t.Errorf("%v: %d of %d bytes: %.300s", err, len(text), len(all), text)
	}
	t.Logf("looking again takes %v; the page is sent %d bytes instead of %d", again, len(text), len(all))
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	s.roll.look()
	if lines, _, _ := s.roll.since(version); len(lines) != 2 || lines[0].Error == "" {
		t.Errorf("after a run was removed %d have changed", len(lines))
	}
	if len(list) != 1000 {
		t.Errorf("%d runs", len(list))
	}
	for _, run := range list {
		if run.Last == nil || run.Error != "" {
			t.Fatalf("%s: last %v, %s", run.Dir, run.Last, run.Error)
		}
	}
}

// appendStep continues the log of a run by a step.
func appendStep(t testing.TB, dir string, step int64) {
	t.Helper()
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Iteration(&eventlog.Iteration{Step: step, MaxSteps: 10_000, Loss: 1, Seconds: 0.1, UnixNano: time.Now().UnixNano()})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
