package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/term"
	"spillway/monitor"
)

func newTop(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [RUN...]",
		Short: "a live view of GPUs, their links, memory and the runs of this computer",
		Long: `Shows what this computer does, again every second: the CPU and the host's memory; of
each NVIDIA GPU how busy it is, its memory, its link in both directions, temperature, power,
clock and the processes that hold its memory, with their names; and the training runs of
this computer with step, loss, speed, share of roofline, what limits them, time left and
alerts. Where there is no GPU the rest is shown. q quits.

Runs are found by themselves, by their event logs; folders of others can be named.

On a pipe it writes plain lines; --json writes an object per look and --csv a table, for
logging: give --every 10s, and --count to stop after some looks.`,
		Example: `  spillway top
  spillway top --every 5s
  spillway top --json --count 1
  spillway top --csv --every 10s --count 360`,
	}
	asJSON := cmd.Flags().Bool("json", false, "write a JSON object per look, for programs")
	asCSV := cmd.Flags().Bool("csv", false, "write a table in CSV: a line for the host and for each GPU per look")
	every := cmd.Flags().Duration("every", time.Second, "look again after `TIME`")
	count := cmd.Flags().Int("count", 0, "stop after `N` looks, 0 for never")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *asJSON && *asCSV:
			return usageErrorf("--json and --csv are both given: give one")
		case *every < 100*time.Millisecond:
			return usageErrorf("--every %v is too often: it takes up to 100 ms to ask the GPUs; give at least 100ms", *every)
		case *count < 0:
			return usageErrorf("--count %d: it cannot be negative", *count)
		}
		for _, note := range notYet(args) {
			fmt.Fprintln(sh.err, note)
		}
		w := monitor.Watch(sh.cache, args...)
		var err error
		switch screen, ok := term.OpenScreen(sh.in, sh.out); {
		case *asJSON || *asCSV || !ok:
			if ok {
				screen.Close()
			}
			err = logTop(cmd.Context(), sh, w, *every, *count, *asJSON, *asCSV)
		default:
			err = drawTop(cmd.Context(), screen, w, *every, *count)
			screen.Close()
		}
		return errors.Join(err, w.Close())
	}
	return cmd
}

// logTop writes looks one after the other.
func logTop(ctx context.Context, sh shell, w *monitor.Watcher, every time.Duration, count int, asJSON, asCSV bool) error {
	table := csv.NewWriter(sh.out)
	if asCSV {
		table.Write(monitor.Columns) // its error comes with the first flush
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for n := 1; ; n++ {
		at := w.Look()
		var err error
		switch {
		case asJSON:
			err = writeJSON(sh.out, at)
		case asCSV:
			err = table.WriteAll(at.Rows())
		default:
			if n == 1 {
				for _, note := range at.Notes {
					fmt.Fprintln(sh.err, note)
				}
			}
			_, err = fmt.Fprintln(sh.out, strings.Join(at.Lines(), "\n"))
		}
		if err != nil || n == count {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}

// drawTop draws looks on the whole window until q is pressed.
func drawTop(ctx context.Context, screen *term.Screen, w *monitor.Watcher, every time.Duration, count int) error {
	view := &monitor.Screen{Colour: true, Every: every}
	resized, stop := term.Resized()
	defer stop()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	at := w.Look()
	view.Add(at)
	for n := 1; ; {
		width, height := screen.Size()
		if err := screen.Show(view.Draw(at, width, height)); err != nil {
			return err
		}
		if n == count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-screen.Keys():
			if key == 'q' || key == 'Q' {
				return nil
			}
		case <-resized:
		case <-ticks.C:
			at = w.Look()
			view.Add(at)
			n++
		}
	}
}
