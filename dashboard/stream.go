package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"spillway/monitor"
)

// State is what the page is sent: the computer, and the runs that changed since it was last
// sent some.
type State struct {
	monitor.Snapshot
	Runs []RunLine `json:"runs"`
	// Whole: these are all runs there are; otherwise those that are not named are as they were.
	Whole bool `json:"whole"`
}

// feed tells all browsers that listen that there is something new. Each takes it when it can;
// one that does not read is disconnected after a while, and nobody waits for it.
type feed struct {
	mu      sync.Mutex
	clients map[chan struct{}]bool
	closed  bool
	missed  int64 // news that clients did not take before the next
	made    int64 // messages that were made: one for all clients that know the same
	stalled int64 // clients that were disconnected, since they did not read

	computer monitor.Snapshot
	// The message that most clients need: those that took the one before.
	text           []byte
	textFrom, upTo int64
}

// maxClients bounds how many pages listen at once.
const maxClients = 256

func (f *feed) listeners() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}

// join gives a channel on which news are announced, or nil where there are too many clients.
func (f *feed) join() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.clients) >= maxClients {
		return nil
	}
	if f.clients == nil {
		f.clients = map[chan struct{}]bool{}
	}
	c := make(chan struct{}, 1)
	f.clients[c] = true
	return c
}

func (f *feed) leave(c chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.clients, c)
}

// lost counts a client that did not read in time; others went away by themselves.
func (f *feed) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.stalled++
	}
}

// counts are clients, messages that were made, news that were not taken in time, and clients that were
// disconnected for that.
func (f *feed) counts() (clients int, made, missed, stalled int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients), f.made, f.missed, f.stalled
}

// announce says that there is news. It waits for nobody.
func (f *feed) announce(computer monitor.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.computer, f.text = computer, nil
	for c := range f.clients {
		select {
		case c <- struct{}{}:
		default:
			f.missed++
		}
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.clients {
		close(c)
		delete(f.clients, c)
	}
}

// message is what a client that knows the runs of a version does not know yet, and the version
// it knows then. It is made once for all clients that know the same.
func (f *feed) message(runs *roll, version int64) ([]byte, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text != nil && f.textFrom == version {
		return f.text, f.upTo, nil
	}
	st := State{Snapshot: f.computer}
	var now int64
	st.Runs, st.Whole, now = runs.since(version)
	text, err := json.Marshal(st)
	if err != nil {
		return nil, version, err
	}
	f.text, f.textFrom, f.upTo = text, version, now
	f.made++
	return text, now, nil
}

// writeWithin is how long a browser may take to read a message.
const writeWithin = 5 * time.Second

// stream sends server-sent events: the state of the computer and all its runs, then every
// second what changed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	c := s.feed.join()
	if c == nil {
		http.Error(w, "too many pages listen", http.StatusServiceUnavailable)
		return
	}
	defer s.feed.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	var version int64
	for {
		select {
		case <-r.Context().Done():
			return
		case _, open := <-c:
			if !open {
				return
			}
			message, now, err := s.feed.message(&s.roll, version)
			if err != nil {
				return
			}
			version = now
			_ = control.SetWriteDeadline(time.Now().Add(s.patience)) // not all connections have one
			_, err = fmt.Fprintf(w, "data: %s\n\n", message)
			if err == nil {
				err = control.Flush()
			}
			if err != nil {
				s.feed.lost(err)
				return
			}
		}
	}
}
