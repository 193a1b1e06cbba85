package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"spillway/eventlog"
)

// Forwarder hands alerts to a command or to a web address, from a goroutine of its own: a run
// never waits for them. The zero value hands nothing on.
type Forwarder struct {
	// Command is a line for the shell, with the alert as JSON in its input.
	Command string
	// Webhook is an address that the alert is posted to as JSON; its "text" is what chat programs
	// show.
	Webhook string

	once  sync.Once
	queue chan eventlog.Alert
	done  chan struct{}
	err   error // the first, for Close
}

// maxQueued is how many alerts wait; further ones are dropped, since an alert a second helps
// nobody.
const maxQueued = 16

// forwardWithin is how long a command or an address may take.
var forwardWithin = 10 * time.Second

// Alert hands an alert on.
func (f *Forwarder) Alert(a eventlog.Alert) {
	if f.Command == "" && f.Webhook == "" {
		return
	}
	f.once.Do(func() {
		f.queue, f.done = make(chan eventlog.Alert, maxQueued), make(chan struct{})
		go f.loop()
	})
	select {
	case f.queue <- a:
	default:
	}
}

// Close waits for the alerts that it was given, and says what went wrong first.
func (f *Forwarder) Close() error {
	if f.queue == nil {
		return nil
	}
	close(f.queue)
	<-f.done
	f.queue = nil
	return f.err
}

func (f *Forwarder) loop() {
	defer close(f.done)
	for a := range f.queue {
		ctx, cancel := context.WithTimeout(context.Background(), forwardWithin)
		if err := f.send(ctx, a); err != nil && f.err == nil {
			f.err = fmt.Errorf("handing on an alert: %w", err)
		}
		cancel()
	}
}

// message is an alert as programs are given it.
type message struct {
	Line string `json:"line"` // for people
	eventlog.Alert
}

func (f *Forwarder) send(ctx context.Context, a eventlog.Alert) error {
	text, err := json.Marshal(message{a.String(), a})
	if err != nil {
		return err
	}
	var errs []error
	if f.Command != "" {
		name, flag := "sh", "-c"
		if runtime.GOOS == "windows" {
			name, flag = "cmd", "/C"
		}
		cmd := exec.CommandContext(ctx, name, flag, f.Command)
		cmd.Stdin, cmd.WaitDelay = bytes.NewReader(text), time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", f.Command, err, bytes.TrimSpace(out)))
		}
	}
	if f.Webhook != "" {
		errs = append(errs, post(ctx, f.Webhook, text))
	}
	return errors.Join(errs...)
}

func post(ctx context.Context, address string, text []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // nothing in it is needed
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s answers %s", address, answer.Status)
	}
	return nil
}
