package dashboard

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/eventlog"
)

// crowd is clients of a page: some read everything and ask for views as a page does, some read
// slowly, some never read. It counts what was answered until stop is closed.
func crowd(t testing.TB, address string, id string, count int, stop chan struct{}) (answered *atomic.Int64, wait func()) {
	t.Helper()
	answered = new(atomic.Int64)
	var running sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: count}, Timeout: 10 * time.Second}
	for i := range count {
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", c.RemoteAddr())
		running.Go(func() {
			defer c.Close()
			switch i % 3 {
			case 0: // a page: what comes, and the views it shows
				go func() {
					<-stop
					c.Close()
				}()
				lines := bufio.NewScanner(c)
				lines.Buffer(nil, 1<<20)
				for beat := 0; lines.Scan(); {
					if !strings.HasPrefix(lines.Text(), "data: ") {
						continue
					}
					views := []string{"now"}
					if beat++; beat%3 == 0 {
						views = []string{"now", "metric/loss.svg", "metric/seconds.svg", "metric/tokens_per_second.svg", "metric/eval_loss.svg"}
					}
					for _, v := range views {
						if r, err := client.Get(address + "/api/run/" + id + "/" + v); err == nil {
							r.Body.Close()
							answered.Add(1)
						}
					}
				}
			case 1: // a slow one: a few bytes now and then
				b := make([]byte, 16)
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						c.SetReadDeadline(time.Now().Add(time.Millisecond))
						c.Read(b)
					}
				}
			default: // one that stalled
				<-stop
			}
		})
	}
	return answered, running.Wait
}

// A run's writer never waits for browsers: with a hundred of them, of which a third read slowly and
// a third not at all, every record is in the log, none took longer than a record may, and the
// pages are answered.
func TestClientsNeverBlockARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	p := tinyPlan(t)
	record(t, dir, 3, p, eventsOf(p))
	s, h := serve(t, Options{Runs: []string{dir}, Every: 20 * time.Millisecond})
	stop := make(chan struct{})
	answered, wait := crowd(t, h.URL, idOf(dir), 100, stop)
	for s.feed.listeners() < 100 {
		time.Sleep(time.Millisecond)
	}
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const steps = 400
	var worst, sum time.Duration
	for n := range int64(steps) {
		it := eventlog.Iteration{Step: n + 4, MaxSteps: 1000, Loss: 1, Seconds: 0.005, UnixNano: time.Now().UnixNano()}
		began := time.Now()
		w.Iteration(&it)
		took := time.Since(began)
		worst, sum = max(worst, took), sum+took
		time.Sleep(5 * time.Millisecond)
	}
	if dropped, err := w.Dropped(); dropped != 0 || err != nil {
		t.Errorf("%d records were dropped: %v", dropped, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	wait()
	log, err := eventlog.Follow(filepath.Join(dir, eventlog.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if len(log.Iterations) != steps+3 || log.Damaged != nil {
		t.Errorf("the log has %d steps: %v", len(log.Iterations), log.Damaged)
	}
	t.Logf("writing a step takes %v on average, %v at most; %d views were answered, %d news were not taken in time", sum/steps, worst, answered.Load(), s.feed.missed)
	if answered.Load() < 30 {
		t.Errorf("%d views were answered", answered.Load())
	}
	if sum/steps > time.Millisecond { // a microsecond on an idle machine
		t.Errorf("writing a step takes %v", sum/steps)
	}
}

var (
	crowdAt  = flag.String("crowd", "", "be a hundred clients of the dashboard at this URL, such as http://127.0.0.1:7070")
	crowdFor = flag.Duration("crowd-for", 15*time.Second, "for so long")
)

// TestCrowd is a hundred clients of a dashboard elsewhere, to see whether the run that serves it
// slows down: spillway train ... --dashboard=127.0.0.1:7070, with and without.
func TestCrowd(t *testing.T) {
	if *crowdAt == "" {
		t.Skip("no -crowd is given")
	}
	text, _ := get(t, *crowdAt+"/api/state")
	var st State
	if err := json.Unmarshal([]byte(text), &st); err != nil || len(st.Runs) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	stop := make(chan struct{})
	answered, wait := crowd(t, *crowdAt, st.Runs[0].ID, 100, stop)
	time.Sleep(*crowdFor)
	close(stop)
	wait()
	t.Logf("a hundred clients of %s: %d views were answered", st.Runs[0].Name, answered.Load())
}
