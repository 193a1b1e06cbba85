package dashboard

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed sends what happens to all browsers that listen. One that does not read misses what it
// does not read, and is disconnected; nobody waits for it.
type feed struct {
	mu      sync.Mutex
	clients map[chan []byte]bool
	closed  bool
	missed  int64 // messages that clients did not take in time
}

// maxClients bounds how many pages listen at once.
const maxClients = 256

func (f *feed) listeners() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}

// join gives a channel with the newest message, or nil where there are too many clients.
func (f *feed) join() chan []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.clients) >= maxClients {
		return nil
	}
	if f.clients == nil {
		f.clients = map[chan []byte]bool{}
	}
	c := make(chan []byte, 1)
	f.clients[c] = true
	return c
}

func (f *feed) leave(c chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.clients, c)
}

// send gives a message to all clients: the newest replaces one that was not taken yet.
func (f *feed) send(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.clients {
		select {
		case <-c:
			f.missed++
		default:
		}
		c <- message // the channel is empty, and only this function fills it
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

// writeWithin is how long a browser may take to read a message.
const writeWithin = 5 * time.Second

// stream sends server-sent events: the state of the computer and its runs, now and then every
// second.
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
	for {
		select {
		case <-r.Context().Done():
			return
		case message, open := <-c:
			if !open {
				return
			}
			_ = control.SetWriteDeadline(time.Now().Add(writeWithin)) // not all connections have one
			if _, err := fmt.Fprintf(w, "data: %s\n\n", message); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
		}
	}
}
