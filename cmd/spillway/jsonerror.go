package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// failure is the object that a command with --json writes where it fails before it has written another.
type failure struct {
	Error    string `json:"error"`
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
}

// jsonOutput is the standard output of a command with --json: it remembers whether there is an object on it.
type jsonOutput struct {
	mu    sync.Mutex
	to    io.Writer
	wrote bool
	ended bool // by a failure: nothing follows it
}

// newJSONOutput puts itself before the output of a shell, where the arguments have --json. They are looked at
// before they are parsed, since a mistake in another one is answered with an object too.
func newJSONOutput(args []string, sh *shell) *jsonOutput {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	if !slices.ContainsFunc(args, func(a string) bool { return a == "--json" || a == "--json=true" }) {
		return nil
	}
	o := &jsonOutput{to: sh.out}
	sh.out = o
	if sh.signals != nil {
		sh.signals.object.Store(o)
	}
	return o
}

func (o *jsonOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, os.ErrClosed
	}
	o.wrote = o.wrote || len(p) > 0
	return o.to.Write(p)
}

// fail writes the object of a failure, so that whoever parses the output always finds one. What a command has
// written, such as the plan that does not fit, says more.
func (o *jsonOutput) fail(command string, err error, code int) {
	if o == nil || err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrote || o.ended {
		return
	}
	o.ended = true
	var by *interruptedError
	text := err.Error()
	if errors.As(err, &by) || errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	writeJSON(o.to, failure{strings.TrimSpace(text), command, code}) // the exit code says it in any case
}
