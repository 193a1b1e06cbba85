package inference

import (
	"context"
	"errors"
	"fmt"

	"spillway/eventlog"
	"spillway/generate"
	"spillway/internal/vfs"
	"spillway/monitor"
)

// Recording says what is written of what an engine does.
type Recording struct {
	// Dir is the folder of the event log, which views read; it is made where there is none.
	Dir string
	// Log is a file that every stretch is appended to, as a line of JSON or of a table; "" for none.
	Log string
	// Profile has the ops of a step with a prompt and of one without timed; Profiled is called with each.
	Profile  bool
	Profiled func(eventlog.Profile)
	monitor.RecordOptions
}

// Recorder records an engine. A nil one does nothing.
type Recorder struct {
	monitor.GenerationRecorder
	lines *eventlog.Lines
}

// Record begins to record what the engine computes. The caller closes the recorder, before the
// engine.
func (e *Engine) Record(o Recording) (*Recorder, error) {
	s, ok := e.Engine.(*generate.Session)
	if !ok {
		return nil, errors.New("only steps over a cache are recorded; leave --no-cache out")
	}
	if err := vfs.MkdirAll(vfs.OS, o.Dir); err != nil {
		return nil, fmt.Errorf("making the folder of the event log: %w", err)
	}
	if had, err := eventlog.Summarize(eventlog.PathOf(o.Dir)); err == nil && had.Start.Task != "" && had.Start.Task != string(e.Run.Options.Task) {
		return nil, fmt.Errorf("%s has the event log of a run with the task %s; name another folder with --out", o.Dir, had.Start.Task)
	}
	r := &Recorder{}
	var err error
	if r.lines, err = eventlog.OpenLines(o.Log, eventlog.GenerationColumns); err != nil {
		return nil, err
	}
	r.Profile, r.Profiled = o.Profile, o.Profiled
	if r.lines != nil {
		r.Line = func(g *eventlog.Generation) { r.lines.Add(g, func() []string { return g.Row(r.ID()) }) }
	}
	r.Begin(e.Run, o.Dir, o.RecordOptions)
	s.Watch(r)
	return r, nil
}

// End writes how it ended, with the error if there was one, and closes the files.
func (r *Recorder) End(ctx context.Context, err error) error {
	if r == nil {
		return nil
	}
	r.Close(ctx.Err() != nil, err)
	return r.lines.Close()
}
