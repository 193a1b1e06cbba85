package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"spillway/internal/term"
)

// quietPlanning is how long plans are made before it is said.
const quietPlanning = 2 * time.Second

// planning shows on a terminal what is tried while a plan is looked for, and ends that with Ctrl-C.
type planning struct {
	ctx   context.Context
	line  *term.Line // nil where nobody looks
	began time.Time
	what  string // what plans are looked for
	plans int    // that were written
}

func newPlanning(ctx context.Context, w io.Writer) *planning {
	p := &planning{ctx: ctx, began: time.Now(), what: "planning"}
	if term.Width(w) > 0 {
		p.line = term.NewLine(w)
	}
	return p
}

// tries hears of what is tried, "" where no plan is written.
func (p *planning) tries(plan string) error {
	if plan != "" {
		p.plans++
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.line != nil && plan != "" && time.Since(p.began) > quietPlanning {
		p.line.Show(func() string {
			return fmt.Sprintf("%s, %d s: %s tried, now %s", p.what, int(time.Since(p.began).Seconds()), plural(p.plans, "plan"), plan)
		})
	}
	return nil
}

// done wipes the line, and says whether Ctrl-C ended the search.
func (p *planning) done(err error) error {
	if p.line != nil {
		p.line.Done()
	}
	if stopped := p.ctx.Err(); stopped != nil {
		return stopped
	}
	return err
}
