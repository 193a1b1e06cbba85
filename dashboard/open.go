package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"spillway/eventlog"
	"spillway/view"
)

// openRun is a run that somebody looks at, with the answers that were made of it. A hundred
// pages that show the same run cost as much work as one.
type openRun struct {
	dir string

	mu      sync.Mutex
	run     *view.Run   // nil until it is asked for
	file    os.FileInfo // of its event log: another file is another run
	looked  time.Time
	answers map[string]answer
	size    int // of all answers, in bytes
}

// answer is what a browser is sent.
type answer struct {
	kind, tag string
	body      []byte
}

const (
	// maxOpen is how many runs are held open.
	maxOpen = 32
	// freshEvery is how long a run is shown as it is before its log is looked at again: steps of
	// milliseconds do not mean a thousand pictures a second.
	freshEvery = 900 * time.Millisecond
	// maxAnswers is how many bytes of answers a run keeps.
	maxAnswers = 32 << 20
)

var errNoRun = errors.New("there is no such run")

// openRuns are those that somebody looks at.
type openRuns struct {
	mu     sync.Mutex
	byID   map[string]*openRun
	used   []string // ids, least recently used first
	closed bool
}

// get gives the run of a folder.
func (rs *openRuns) get(id, dir string) (*openRun, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return nil, http.ErrServerClosed
	}
	rs.used = append(slices.DeleteFunc(rs.used, func(u string) bool { return u == id }), id)
	if o := rs.byID[id]; o != nil {
		return o, nil
	}
	if rs.byID == nil {
		rs.byID = map[string]*openRun{}
	}
	if len(rs.byID) >= maxOpen {
		oldest := rs.byID[rs.used[0]]
		delete(rs.byID, rs.used[0])
		rs.used = rs.used[1:]
		go oldest.close() // whoever uses it may take a while
	}
	o := &openRun{dir: dir}
	rs.byID[id] = o
	return o, nil
}

func (rs *openRuns) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for _, o := range rs.byID {
		o.close()
	}
	rs.byID = nil
}

func (o *openRun) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget()
}

// forget closes the log and drops what was made of it.
func (o *openRun) forget() {
	if o.run != nil {
		o.run.Close() // it was only read
	}
	o.run, o.answers, o.size = nil, nil, 0
}

// refresh opens the run, or brings it up to date. The caller holds the lock.
func (o *openRun) refresh() error {
	if o.run != nil && time.Since(o.looked) < freshEvery {
		return nil
	}
	o.looked = time.Now()
	info, err := os.Stat(eventlog.PathOf(o.dir))
	if o.run != nil && (err != nil || !os.SameFile(info, o.file) || info.Size() < o.file.Size()) {
		o.forget() // the folder was used again
	}
	o.file = info
	if o.run == nil {
		o.run, err = view.Open(o.dir)
		return err
	}
	changed, err := o.run.Update()
	if changed || err != nil {
		o.answers, o.size = nil, 0
	}
	return err
}

// with calls do with a run, brought up to date, while nobody else uses it.
func (s *Server) with(id string, do func(*openRun) error) error {
	dir := s.roll.dir(id)
	if dir == "" {
		return errNoRun
	}
	o, err := s.open.get(id, dir)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refresh(); err != nil {
		return err
	}
	return do(o)
}

// answerRun writes what do makes of the run that an address names, in the form of its ending.
func (s *Server) answerRun(w http.ResponseWriter, r *http.Request, do func(*view.Run) (any, error)) {
	var a answer
	key := r.URL.Path + "?" + r.URL.RawQuery
	err := s.with(r.PathValue("id"), func(o *openRun) error {
		if kept, has := o.answers[key]; has {
			a = kept
			return nil
		}
		s.work <- struct{}{} // one at a time, however many ask: cores are for training
		defer func() { <-s.work }()
		made, err := do(o.run)
		if err != nil {
			return err
		}
		if a, err = answerOf(path.Ext(r.PathValue("file")), made, schemeOf(r)); err != nil {
			return err
		}
		if o.size += len(a.body); o.answers == nil || o.size > maxAnswers {
			o.answers, o.size = map[string]answer{}, len(a.body)
		}
		o.answers[key] = a
		return nil
	})
	a.send(w, r, err)
}

// schemeOf is the colour scheme that an address asks for.
func schemeOf(r *http.Request) view.Scheme {
	return r.URL.Query().Get("scheme") == "dark"
}

// errNoForm says that a view is not written so.
var errNoForm = errors.New("there is no such form of it: .json, .csv, .svg and .png are")

// answerOf is a view in the form that the ending of a name asks for.
func answerOf(form string, v any, scheme view.Scheme) (answer, error) {
	var b bytes.Buffer
	var kind string
	var err error
	drawn, canDraw := v.(view.Drawn)
	table, canTable := v.(interface{ CSV(io.Writer) error })
	switch {
	case (form == ".svg" || form == ".png") && canDraw:
		kind = map[string]string{".svg": "image/svg+xml", ".png": "image/png"}[form]
		err = view.WritePicture(&b, form, drawn, scheme)
	case form == ".csv" && canTable:
		kind, err = "text/csv; charset=utf-8", table.CSV(&b)
	case form == ".json" || form == "":
		kind, err = "application/json", json.NewEncoder(&b).Encode(v)
	default:
		err = errNoForm
	}
	sum := fnv.New64a()
	sum.Write(b.Bytes())
	return answer{kind, fmt.Sprintf(`"%x"`, sum.Sum64()), b.Bytes()}, err
}

// send writes the answer, or why there is none. A browser that has it already gets nothing again.
func (a answer) send(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(statusOf(err))
		json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // a browser that is gone reads nothing
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("ETag", a.tag)
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin)) // not all connections have one
	w.Write(a.body)                                                                  // a browser that is gone reads nothing
}

// answerWithin is how long a browser may take to read an answer; one that stopped reading is
// disconnected then.
const answerWithin = time.Minute

func statusOf(err error) int {
	switch {
	case errors.Is(err, errNoRun), errors.Is(err, errNoPlan), errors.Is(err, errNoForm), errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// answerJSON writes a value that is made anew each time.
func answerJSON(w http.ResponseWriter, r *http.Request, v any, err error) {
	var a answer
	if err == nil {
		a, err = answerOf("", v, view.Light)
	}
	a.send(w, r, err)
}
