package main

import (
	"context"
	"errors"

	"spillway/inference"
	"spillway/internal/term"
)

// sessionFlags are the flags of commands that generate.
type sessionFlags struct {
	modelFlags
	samplingFlags
	recordFlags
	draftFlags
}

// checkSession refuses flags of guessing and recording that have no effect.
func (o *sessionFlags) checkSession() error {
	if err := o.draftFlags.check(o.all.Changed, o.noCache); err != nil {
		return err
	}
	return o.recordFlags.check(o.noCache)
}

// session is a model that generates, who guesses its tokens, and what is written about it.
type session struct {
	*inference.Engine
	draft  *inference.Draft // nil where nobody guesses
	record *recorded        // nil where nothing is written
}

// inSession starts a model for texts of a size, has use generate with it, and ends both.
func (o *sessionFlags) inSession(ctx context.Context, sh shell, m *inference.Model, size inference.Size, line *term.Line, use func(session) error) (err error) {
	draft, e, err := o.start(ctx, m, size, o.all.Changed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close(), draft.Close()) }()
	record, err := o.begin(sh, e, o.all, line)
	if err != nil {
		return err
	}
	defer func() { err = record.end(ctx, err) }()
	line.Done()
	return use(session{e, draft, record})
}
