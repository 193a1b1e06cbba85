package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// signals are how the program is asked to end: by Ctrl-C, by kill, or by a terminal that
// is closed. The first cancels the context of the command, which has a moment to clean up;
// while training it has as long as the step and saving take. A second one ends the program
// at once.
type signals struct {
	training  atomic.Bool
	answering atomic.Pointer[context.CancelFunc] // ends what Ctrl-C ends instead of the program
	object    atomic.Pointer[jsonOutput]         // what --json writes; nil without it
	exit      func(code int)
	err       io.Writer
}

// graceTime is how long a command that saves nothing may take to end.
const graceTime = time.Second

// interruptedError says that a signal ended a command, after it has said what came of it.
type interruptedError struct{ signal syscall.Signal }

func (e *interruptedError) Error() string { return "interrupted" }

// code is the exit code that shells expect: 130 after Ctrl-C.
func (e *interruptedError) code() int { return 128 + int(e.signal) }

// interruption is the signal that cancelled a context, Ctrl-C where something else did.
func interruption(ctx context.Context) *interruptedError {
	var by *interruptedError
	if errors.As(context.Cause(ctx), &by) {
		return by
	}
	return &interruptedError{syscall.SIGINT}
}

// notify has signals cancel a context. Those that are ignored, as HUP is under nohup, stay
// so.
func (s *signals) notify(cancel context.CancelCauseFunc) {
	came := make(chan os.Signal, 2)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(came, sig)
		}
	}
	// Output that nobody reads any more must not end a training run.
	signal.Ignore(syscall.SIGPIPE)
	go s.watch(came, cancel)
}

func (s *signals) watch(came <-chan os.Signal, cancel context.CancelCauseFunc) {
	first := (<-came).(syscall.Signal)
	for first == syscall.SIGINT {
		end := s.answering.Swap(nil)
		if end == nil {
			break
		}
		(*end)()
		first = (<-came).(syscall.Signal)
	}
	by := &interruptedError{first}
	late := time.After(graceTime)
	if s.training.Load() {
		late = nil
		fmt.Fprintln(s.err, "\nfinishing the step and saving; again to quit at once, without saving")
	}
	cancel(by)
	select {
	case <-came:
	case <-late:
		fmt.Fprintf(s.err, "\nstopped after %v in the middle of something that does not look for Ctrl-C; nothing was being saved\n", graceTime)
	}
	s.object.Load().fail("spillway", by, by.code())
	s.exit(by.code())
}

// hold says that what runs until the function it returns is called must be waited for.
func (s *signals) hold() (end func()) {
	if s == nil {
		return func() {}
	}
	s.training.Store(true)
	return func() { s.training.Store(false) }
}

// interruptible gives a context that Ctrl-C ends instead of the program, until stop is called.
func (s *signals) interruptible(ctx context.Context) (_ context.Context, stop func()) {
	inner, cancel := context.WithCancel(ctx)
	if s == nil {
		return inner, cancel
	}
	s.answering.Store(&cancel)
	return inner, func() {
		s.answering.Store(nil)
		cancel()
	}
}
