package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
)

// failure is the object that a command with --json writes where it fails before it has written another.
type failure struct {
	Error    string `json:"error"`
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
}

// jsonOutput is the standard output of a command with --json: it remembers whether there is an object on it.
type jsonOutput struct {
	io.Writer
	wrote bool
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
	o := &jsonOutput{Writer: sh.out}
	sh.out = o
	return o
}

func (o *jsonOutput) Write(p []byte) (int, error) {
	o.wrote = o.wrote || len(p) > 0
	return o.Writer.Write(p)
}

// fail writes the object of a failure, so that whoever parses the output always finds one. What a command has
// written, such as the plan that does not fit, says more.
func (o *jsonOutput) fail(command string, err error, code int) {
	if o == nil || o.wrote || err == nil {
		return
	}
	var by *interruptedError
	text := err.Error()
	if errors.As(err, &by) || errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	writeJSON(o.Writer, failure{strings.TrimSpace(text), command, code}) // the exit code says it in any case
}
