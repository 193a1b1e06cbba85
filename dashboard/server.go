// Package dashboard serves a page that shows runs while they go on and after: loss, speed and
// memory against the plan, one step as planned and as measured, and runs side by side. It
// reads event logs and nothing else, so that it works inside a training process, next to one,
// and on runs that have ended; no browser can slow a run down.
package dashboard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"spillway/monitor"
	"spillway/plan"
	"spillway/view"
)

//go:embed page
var files embed.FS

// Options of a server. All may be left out.
type Options struct {
	Cache string   // the user's cache folder, which lists the runs of this computer
	Runs  []string // folders of more runs
	// Token is asked of every client; "" asks for none, which is for loopback addresses only.
	Token string
	Every time.Duration // between two looks at the computer, 1 s if zero
}

// Server answers browsers. Close ends it.
type Server struct {
	o     Options
	mux   *http.ServeMux
	watch *monitor.Watcher
	feed  feed

	mu   sync.Mutex
	runs map[string]*openRun // by id
	used []string            // ids, least recently used first

	stop func()
	done chan struct{}
}

// openRun is a run that somebody looks at.
type openRun struct {
	mu  sync.Mutex
	run *view.Run
}

// maxOpen is how many runs are held open.
const maxOpen = 32

// New makes a server and begins to look at the computer.
func New(o Options) *Server {
	if o.Every == 0 {
		o.Every = time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{o: o, mux: http.NewServeMux(), watch: monitor.Watch(o.Cache, o.Runs...), runs: map[string]*openRun{}, stop: stop, done: make(chan struct{})}
	s.routes()
	go s.look(ctx)
	return s
}

// Close ends all streams and closes all logs.
func (s *Server) Close() error {
	s.stop()
	<-s.done
	s.feed.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		r.mu.Lock()
		r.run.Close()
		r.mu.Unlock()
	}
	s.runs = nil
	return s.watch.Close()
}

// look sends the state of the computer to all streams, as long as there are any.
func (s *Server) look(ctx context.Context) {
	defer close(s.done)
	ticks := time.NewTicker(s.o.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if s.feed.listeners() == 0 {
			continue
		}
		if text, err := json.Marshal(s.state()); err == nil {
			s.feed.send(text)
		}
	}
}

// State is what the page is sent every second.
type State struct {
	monitor.Snapshot
	Runs []RunLine `json:"runs"`
}

// RunLine is a run of the list.
type RunLine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	monitor.RunInfo
}

func (s *Server) state() State {
	st := State{Snapshot: s.watch.Look()}
	st.Runs = s.list()
	return st
}

// list is all runs.
func (s *Server) list() []RunLine {
	list := []RunLine{}
	for _, r := range monitor.Runs(s.o.Cache, s.o.Runs...) {
		list = append(list, RunLine{idOf(r.Dir), view.NameOf(r.Dir), r})
	}
	return list
}

// idOf names a folder in addresses.
func idOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
}

var errNoRun = errors.New("there is no such run")

// with calls do with a run, brought up to date, while nobody else uses it.
func (s *Server) with(id string, do func(*view.Run) error) error {
	o, err := s.open(id)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.run.Update(); err != nil {
		return err
	}
	return do(o.run)
}

func (s *Server) open(id string) (*openRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		return nil, http.ErrServerClosed
	}
	s.used = append(slices.DeleteFunc(s.used, func(u string) bool { return u == id }), id)
	if o := s.runs[id]; o != nil {
		return o, nil
	}
	for _, r := range monitor.Dirs(s.o.Cache, s.o.Runs...) {
		if idOf(r) != id {
			continue
		}
		run, err := view.Open(r)
		if err != nil {
			return nil, err
		}
		if len(s.runs) >= maxOpen {
			oldest := s.used[0]
			s.used = s.used[1:]
			if o := s.runs[oldest]; o != nil {
				delete(s.runs, oldest)
				go func() { // whoever uses it may take a while
					o.mu.Lock()
					o.run.Close()
					o.mu.Unlock()
				}()
			}
		}
		o := &openRun{run: run}
		s.runs[id] = o
		return o, nil
	}
	return nil, errNoRun
}

// policy is what the page may load: what this server has.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request, if it may be answered.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	if s.o.Token == "" && !loopbackName(r.Host) {
		http.Error(w, "this address is not the one that was printed", http.StatusForbidden) // another site's name for this computer
		return
	}
	if s.o.Token != "" && !s.admit(w, r) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !sameOrigin(r) {
		http.Error(w, "asked for by another site", http.StatusForbidden)
		return
	}
	s.mux.ServeHTTP(w, r)
}

const cookieName = "spillway_token"

// admit asks for the token, in the address the first time and in a cookie later.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	equal := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(s.o.Token)) == 1 }
	if given := r.URL.Query().Get("token"); given != "" && equal(given) {
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: given, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		return true
	}
	if c, err := r.Cookie(cookieName); err == nil && equal(c.Value) {
		return true
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && equal(bearer) {
		return true
	}
	http.Error(w, "open the address that was printed: it has a token", http.StatusUnauthorized)
	return false
}

// loopbackName says whether a browser was given an address of this computer.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// sameOrigin says whether a request comes from this page, or from no page.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return r.Header.Get("Sec-Fetch-Site") == "" || r.Header.Get("Sec-Fetch-Site") == "same-origin"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// Loopback says whether an address to listen on is of this computer alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackName(host)
}

// routes are all addresses.
func (s *Server) routes() {
	pages, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	static := http.FileServerFS(pages)
	s.mux.Handle("GET /{$}", static)
	for _, name := range []string{"app.js", "gantt.js"} {
		s.mux.Handle("GET /"+name, static)
	}
	s.mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		page, _ := fs.ReadFile(pages, "style.css") // it is embedded
		fmt.Fprint(w, view.CSS(), string(page))
	})
	s.mux.HandleFunc("GET /events", s.stream)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.state(), nil) })
	s.mux.HandleFunc("GET /api/run/{id}/now", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return nowOf(run) })
	})
	s.mux.HandleFunc("GET /api/run/{id}/metric/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return metricOf(r, run) })
	})
	s.mux.HandleFunc("GET /api/run/{id}/memory/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, ofPlan(func(p *plan.Plan) any { return view.MemoryOf(p) }))
	})
	s.mux.HandleFunc("GET /api/run/{id}/timeline/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return run.Timeline() })
	})
	s.mux.HandleFunc("GET /api/run/{id}/map/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, ofPlan(func(p *plan.Plan) any { return view.MapOf(p) }))
	})
	s.mux.HandleFunc("GET /api/run/{id}/forecast/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) {
			t, err := run.Timeline()
			return view.CheckForecast(t), err
		})
	})
	s.mux.HandleFunc("GET /api/run/{id}/plans", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, ofPlan(func(p *plan.Plan) any { return plansOf(p) }))
	})
	s.mux.HandleFunc("POST /api/run/{id}/trace", s.requestTrace)
	s.mux.HandleFunc("GET /api/compare/{file}", s.compare)
}

var errNoPlan = errors.New("the event log of this run has no plan")

// ofPlan makes something of a run's plan.
func ofPlan(do func(*plan.Plan) any) func(*view.Run) (any, error) {
	return func(run *view.Run) (any, error) {
		p, err := run.Plan()
		if err == nil && p == nil {
			err = errNoPlan
		}
		if err != nil {
			return nil, err
		}
		return do(p), nil
	}
}

// picture is a view that can be drawn, written as a table, and as JSON.
type picture interface {
	SVG() string
}

// answerRun writes what do makes of the run that an address names.
func (s *Server) answerRun(w http.ResponseWriter, r *http.Request, do func(*view.Run) (any, error)) {
	var made any
	err := s.with(r.PathValue("id"), func(run *view.Run) (err error) {
		made, err = do(run)
		return err
	})
	answerAs(w, path.Ext(r.PathValue("file")), made, err)
}

// answerAs writes a view in the form that the ending of a name asks for.
func answerAs(w http.ResponseWriter, form string, v any, err error) {
	drawn, canDraw := v.(picture)
	table, canTable := v.(interface{ CSV(io.Writer) error })
	switch {
	case err != nil:
		answer(w, nil, err)
	case form == ".svg" && canDraw:
		w.Header().Set("Content-Type", "image/svg+xml")
		fmt.Fprint(w, drawn.SVG())
	case form == ".csv" && canTable:
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		table.CSV(w) // a browser that is gone reads nothing
	case form == ".json" || form == "":
		answer(w, v, nil)
	default:
		http.Error(w, "there is no such form of it: .json, .csv and .svg are", http.StatusNotFound)
	}
}

// answer writes JSON, or an error as one.
func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, errNoRun) || errors.Is(err, errNoPlan) || errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		v = map[string]string{"error": err.Error()}
	}
	json.NewEncoder(w).Encode(v) // a browser that is gone reads nothing
}
