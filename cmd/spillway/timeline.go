package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/trace"
)

// timelineFlag asks for the steps of an iteration in a file, a bar for each.
func timelineFlag(cmd *cobra.Command, path *string, of string) {
	cmd.Flags().StringVar(path, "timeline", "", "write when every step of "+of+" to `FILE`, which Perfetto and chrome://tracing show")
}

// timeline is a file for the steps of one iteration; nil is none.
type timeline struct {
	file      *os.File
	iteration int64 // that it is of, 0 while it is of none
	err       error // the first that writing gave
}

// openTimeline makes the file at once, so that a path that cannot be written to is known
// before anything runs; "" is none.
func openTimeline(path string) (*timeline, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("opening the timeline: %w", err)
	}
	return &timeline{file: f}, nil
}

// write keeps the steps of an iteration.
func (t *timeline) write(iteration int64, steps []trace.Event) {
	t.iteration, t.err = iteration, errors.Join(t.err, trace.WriteChrome(t.file, steps))
}

// close says what the file holds. One that nothing was written to is removed.
func (t *timeline) close(told io.Writer) error {
	if t == nil {
		return nil
	}
	if err := errors.Join(t.err, t.file.Close()); err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	if t.iteration == 0 {
		return os.Remove(t.file.Name())
	}
	_, err := fmt.Fprintf(told, "timeline of iteration %s in %s\n", grouped(t.iteration), t.file.Name())
	return err
}

// saveTimeline writes when each step of an iteration will run, by the forecast, to a
// file; "" is none.
func saveTimeline(path string, job *spillway.Job) error {
	if path == "" {
		return nil
	}
	steps, err := job.Timeline()
	if err != nil {
		return err
	}
	t, err := openTimeline(path)
	if err != nil {
		return err
	}
	t.write(1, steps)
	return t.close(io.Discard)
}
