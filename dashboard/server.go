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
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
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
	// Replan makes other plans of a run; nil where the page cannot ask for any.
	Replan Replan
	Every  time.Duration // between two looks at the computer, 1 s if zero
}

// Server answers browsers. Close ends it.
type Server struct {
	o     Options
	mux   *http.ServeMux
	watch *monitor.Watcher
	feed  feed
	roll  roll
	open  openRuns
	asked whatIfs
	work  chan struct{} // holds who makes a view now
	// patience is how long a browser may take to read a message.
	patience time.Duration

	watching sync.Mutex // of watch
	ctx      context.Context
	stop     func()
	done     chan struct{}
}

// New makes a server and begins to look at the computer.
func New(o Options) *Server {
	if o.Every == 0 {
		o.Every = time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{o: o, mux: http.NewServeMux(), watch: monitor.Watch(o.Cache, o.Runs...), roll: roll{cache: o.Cache, more: o.Runs}, work: make(chan struct{}, 1), patience: writeWithin, ctx: ctx, stop: stop, done: make(chan struct{})}
	s.asked.turn = make(chan struct{}, 1)
	s.routes()
	go s.look()
	return s
}

// Close ends all streams and closes all logs.
func (s *Server) Close() error {
	s.stop()
	<-s.done
	s.feed.close()
	s.open.close()
	return s.watch.Close()
}

// look tells all streams the state of the computer, as long as there are any.
func (s *Server) look() {
	defer close(s.done)
	ticks := time.NewTicker(s.o.Every)
	defer ticks.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticks.C:
		}
		if s.feed.listeners() == 0 {
			continue
		}
		s.roll.look()
		s.feed.announce(s.computer())
	}
}

// computer is the state of host and GPUs.
func (s *Server) computer() monitor.Snapshot {
	s.watching.Lock()
	defer s.watching.Unlock()
	return s.watch.Computer()
}

// state is everything at once.
func (s *Server) state() State {
	return State{Snapshot: s.computer(), Runs: s.roll.all(), Whole: true}
}

// idOf names a folder in addresses.
func idOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
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
	for _, name := range []string{"app.js", "parts.js", "gantt.js", "map.js", "icon.svg"} {
		s.mux.Handle("GET /"+name, static)
	}
	s.mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		page, _ := fs.ReadFile(pages, "style.css") // it is embedded
		fmt.Fprint(w, view.CSS(), string(page))
	})
	s.mux.HandleFunc("GET /events", s.stream)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, r *http.Request) { answerJSON(w, r, s.state(), nil) })
	s.mux.HandleFunc("GET /api/run/{id}/now", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return nowOf(run), nil })
	})
	s.mux.HandleFunc("GET /api/run/{id}/metric/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return metricOf(r, run) })
	})
	s.mux.HandleFunc("GET /api/run/{id}/memory/{file}", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, func(run *view.Run) (any, error) { return memoryOf(run, r.URL.Query().Get("phase")) })
	})
	s.mux.HandleFunc("GET /api/run/{id}/phases", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, ofPlan(func(p *plan.Plan) any { return phasesOf(p) }))
	})
	s.mux.HandleFunc("GET /api/run/{id}/motion", func(w http.ResponseWriter, r *http.Request) {
		s.answerRun(w, r, motionOf)
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
		s.answerRun(w, r, ofPlan(func(p *plan.Plan) any { return s.plansOf(p) }))
	})
	s.mux.HandleFunc("POST /api/run/{id}/whatif", s.whatIf)
	s.mux.HandleFunc("GET /api/run/{id}/tradeoff/{file}", s.tradeoff)
	s.mux.HandleFunc("GET /api/run/{id}/whatif/{limit}/{file}", s.askedMemory)
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
