// Command strategies writes docs/strategies.md: what the planner picks for presets
// on GPUs of many sizes, alone and together, compared with what a rule of thumb that
// looks at weights alone would pick.
//
//	go run ./tools/strategies            writes the page, which takes a while
//	go run ./tools/strategies gpt2       prints the section of some presets
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"spillway/arch"
)

func main() {
	workers := flag.Int("workers", 2, "how many plans are made at once")
	out := flag.String("out", filepath.Join("docs", "strategies.md"), "the page")
	cache := flag.String("cache", "", "a folder to keep what is planned in, so that a run that was ended goes on; remove it when the planner changes")
	flag.Parse()
	if err := run(flag.Args(), *out, *cache, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "strategies:", err)
		os.Exit(1)
	}
}

func run(names []string, out, cache string, workers int) error {
	whole := len(names) == 0
	if whole {
		names = arch.Presets()
	}
	var tables []*table // smallest first
	for _, name := range names {
		t, err := newTable(name)
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	slices.SortFunc(tables, func(a, b *table) int { return cmp.Or(cmp.Compare(a.params, b.params), cmp.Compare(a.name, b.name)) })
	for i, t := range tables {
		// A model of the same shape as one before has the same cells.
		if like := slices.IndexFunc(tables[:i], func(o *table) bool { return o.shape == t.shape }); like >= 0 {
			t.cells = tables[like].cells
		} else if err := inParallel(t.work(cache), workers); err != nil {
			return err
		}
		if !whole {
			t.write(os.Stdout)
			continue
		}
		var page bytes.Buffer // as far as it is, so that a long run can be watched
		writePage(&page, tables[:i+1])
		if err := os.WriteFile(out, page.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// inParallel does all work, and returns the first error.
func inParallel(work []func() error, workers int) error {
	var all sync.WaitGroup
	next, failed := make(chan func() error), make(chan error, workers)
	for range workers {
		all.Go(func() {
			for do := range next {
				if err := do(); err != nil {
					failed <- err
					for range next { // the others are not wanted any more
					}
				}
			}
		})
	}
	for _, do := range work {
		next <- do
	}
	close(next)
	all.Wait()
	close(failed)
	return <-failed
}
