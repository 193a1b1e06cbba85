package dashboard

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/eventlog"
	"spillway/monitor"
)

// crowd is clients of a page: some read everything and ask for views as a page does, some read
// slowly, some never read. It counts what was answered until stop is closed.
func crowd(t testing.TB, address string, id string, count int, stop chan struct{}) (answered *atomic.Int64, wait func()) {
	t.Helper()
	answered = new(atomic.Int64)
	var running sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: count}, Timeout: 5 * time.Minute}
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
// a third not at all, every record is in the log, writing one takes no longer than without
// them, and the pages are answered.
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
	var all []time.Duration
	for n := range int64(steps) {
		it := eventlog.Iteration{Step: n + 4, MaxSteps: 1000, Loss: 1, Seconds: 0.005, UnixNano: time.Now().UnixNano()}
		began := time.Now()
		w.Iteration(&it)
		all = append(all, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	for answered.Load() < 30 { // however long that takes
		time.Sleep(time.Millisecond)
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
	slices.Sort(all)
	_, _, missed, _ := s.feed.counts()
	t.Logf("writing a step takes %v at the median, %v at most; %d views were answered, %d news were not taken in time", all[steps/2], all[steps-1], answered.Load(), missed)
	if all[steps/2] > time.Millisecond { // a microsecond, whatever a few of them had to wait for
		t.Errorf("writing a step takes %v", all[steps/2])
	}
}

// thin is a listener whose connections hold little, so that a browser that does not read is noticed
// soon.
type thin struct{ net.Listener }

func (l thin) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// stalling serves a run to pages of which count do not read, and whose connections hold little, and to one that
// does. taken is how many messages that one has read.
func stalling(t *testing.T, dir string, count int, patience time.Duration) (s *Server, address string, taken *atomic.Int64) {
	t.Helper()
	s = New(Options{Runs: []string{dir}, Every: 10 * time.Millisecond})
	s.patience = patience
	h := httptest.NewUnstartedServer(s)
	h.Listener = thin{h.Listener}
	h.Start()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	listen := func() *net.TCPConn {
		t.Helper()
		c, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", c.RemoteAddr())
		return c.(*net.TCPConn)
	}
	reads := listen()
	taken = new(atomic.Int64)
	go func() {
		lines := bufio.NewScanner(reads)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				taken.Add(1)
			}
		}
	}()
	for range count {
		if err := listen().SetReadBuffer(4 << 10); err != nil { // it never reads
			t.Fatal(err)
		}
	}
	return s, h.URL, taken
}

// Nobody waits for browsers that stop reading while their connections are full, here for an hour: the computer is looked
// at as before, others are sent everything, and views are answered.
func TestStalledReadersHoldUpNobody(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	p := tinyPlan(t)
	record(t, dir, 3, p, eventsOf(p))
	const count = 50
	s, address, taken := stalling(t, dir, count, time.Hour)
	for missed := int64(0); missed < 10*count; _, _, missed, _ = s.feed.counts() { // until they stall
		time.Sleep(time.Millisecond)
	}
	for before := taken.Load(); taken.Load() < before+10; {
		if _, r := get(t, address+"/api/run/"+idOf(dir)+"/now"); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
	}
	if clients, _, _, stalled := s.feed.counts(); clients != count+1 || stalled != 0 {
		t.Errorf("%d listen, %d were disconnected", clients, stalled)
	}
}

// A browser that does not read for as long as the server has patience is disconnected, and counted; one that reads stays.
// What is made does not depend on how many listen: a message each time, not one for each page.
func TestStalledReadersAreDropped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	p := tinyPlan(t)
	record(t, dir, 3, p, eventsOf(p))
	const count = 50
	s, address, taken := stalling(t, dir, count, time.Second)
	for stalled := int64(0); stalled < count; _, _, _, stalled = s.feed.counts() {
		time.Sleep(time.Millisecond)
	}
	clients, made, missed, stalled := s.feed.counts()
	if clients != 1 || stalled != count || missed == 0 {
		t.Errorf("%d listen, %d were disconnected, %d news were not taken", clients, stalled, missed)
	}
	for before := taken.Load(); taken.Load() < before+10; { // what was on its way has come then
		time.Sleep(time.Millisecond)
	}
	sent := taken.Load()
	if made > sent+missed/count+2*count { // a few more where clients knew different things
		t.Errorf("%d messages were made, one page was sent %d, %d were missed", made, sent, missed)
	}
	text, _ := get(t, address+"/metrics")
	if !regexp.MustCompile(fmt.Sprintf(`spillway_dashboard_clients_stalled\{[^}]*\} %d\n`, count)).MatchString(text) {
		t.Errorf("the metrics do not have it: %s", text)
	}
	t.Logf("%d messages were made, the page that reads took %d of them, the %d that do not missed %d", made, sent, count, missed)
}

// The work for what is new does not grow with the pages that listen: a hundred have one message made
// each time, as one has, and each view once.
func TestOneMessageForAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	p := tinyPlan(t)
	record(t, dir, 3, p, eventsOf(p))
	w, err := eventlog.Open(filepath.Join(dir, eventlog.FileName), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, count := range []int{1, 100} {
		s, _ := serve(t, Options{Runs: []string{dir}, Every: time.Hour})
		versions := make([]int64, count)
		const news = 20
		for n := range int64(news) {
			it := eventlog.Iteration{Step: n + 4, MaxSteps: 1000, Loss: 1, UnixNano: time.Now().UnixNano()}
			w.Iteration(&it)
			for written := false; !written; time.Sleep(time.Millisecond) {
				s.roll.look()
				lines, _, _ := s.roll.since(versions[0])
				written = len(lines) == 1 && lines[0].Last != nil && lines[0].Last.Step == n+4
			}
			s.feed.announce(s.computer())
			for i := range versions {
				var text []byte
				if text, versions[i], err = s.feed.message(&s.roll, versions[i]); err != nil || len(text) == 0 {
					t.Fatal(err)
				}
			}
		}
		if _, made, _, _ := s.feed.counts(); made != news {
			t.Errorf("%d pages: %d messages were made of %d news", count, made, news)
		}
	}
}

var (
	crowdAt     = flag.String("crowd", "", "be a hundred clients of the dashboard at this URL, such as http://127.0.0.1:7070")
	crowdFor    = flag.Duration("crowd-for", 4*time.Second, "for so long, and leave it alone for as long")
	crowdRounds = flag.Int("crowd-rounds", 4, "so many times")
	crowdNoise  = flag.Float64("crowd-noise", 1.02, "how much longer a step may take than one without clients, as a factor")
)

// A run that serves a dashboard elsewhere takes its steps in the same time with a hundred clients as
// without any. They come and go several times, so that whatever else changes is in both:
//
//	taskset -c 0-11 spillway train ... --dashboard=127.0.0.1:7070
//	taskset -c 12-15 dashboard.test -test.run TestCrowd -test.v -crowd http://127.0.0.1:7070
func TestCrowd(t *testing.T) {
	if *crowdAt == "" {
		t.Skip("it watches a training run that somebody started: name its dashboard with -crowd URL")
	}
	run := underWay(t, *crowdAt)
	type window struct {
		from, to time.Time
		crowded  bool
	}
	var windows []window
	for range *crowdRounds {
		began := time.Now()
		time.Sleep(*crowdFor)
		windows = append(windows, window{began, time.Now(), false})
		stop := make(chan struct{})
		answered, wait := crowd(t, *crowdAt, run.ID, 100, stop)
		began = time.Now()
		time.Sleep(*crowdFor)
		windows = append(windows, window{began, time.Now(), true})
		close(stop)
		wait()
		t.Logf("a hundred clients of %s: %d views were answered", run.Name, answered.Load())
		time.Sleep(200 * time.Millisecond)
	}
	log, err := eventlog.Follow(filepath.Join(run.Dir, eventlog.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var all [2][]float64
	for _, w := range windows {
		which := 0
		if w.crowded {
			which = 1
		}
		list := stepsWithin(log, w.from, w.to)
		if len(list) == 0 {
			t.Fatalf("no steps ended between %v and %v", w.from, w.to)
		}
		all[which] = append(all[which], list...)
		t.Logf("%-8s %4d steps, median %.3f ms", []string{"alone", "crowded"}[which], len(list), 1e3*median(list))
	}
	alone, crowded := median(all[0]), median(all[1])
	t.Logf("median step: %.3f ms alone (%d steps), %.3f ms with a hundred clients (%d): %+.2f%%", 1e3*alone, len(all[0]), 1e3*crowded, len(all[1]), 100*(crowded/alone-1))
	if crowded > alone**crowdNoise {
		t.Errorf("clients make a step %.3f times as long", crowded/alone)
	}
}

// underWay is the run that a dashboard shows, once it takes steps.
func underWay(t *testing.T, address string) RunLine {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		r, err := http.Get(address + "/api/state")
		if err != nil {
			continue // it does not listen yet
		}
		var st State
		err = json.NewDecoder(r.Body).Decode(&st)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range st.Runs {
			if run.State == monitor.Running && run.Last != nil && run.Last.Step > 5 {
				return run
			}
		}
	}
	t.Fatal("no run takes steps")
	return RunLine{}
}

// stepsWithin are the seconds from the end of one step to the end of the next, between two times. Those
// that were timed instruction by instruction, and those with an evaluation, are left out.
func stepsWithin(log *eventlog.Log, from, to time.Time) (list []float64) {
	var before int64
	for i := range log.Iterations {
		it := &log.Iterations[i]
		began := before
		before = it.UnixNano
		if it.Traced || it.EvalLoss != 0 || began < from.UnixNano() || it.UnixNano > to.UnixNano() {
			continue
		}
		list = append(list, float64(it.UnixNano-began)/1e9)
	}
	return list
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
