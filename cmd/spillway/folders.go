package main

import (
	"fmt"
	"io"
	"time"

	"spillway/convert"
	"spillway/dtype"
	"spillway/internal/term"
	"spillway/units"
)

// folderResult is the object that quantize, merge and export write with --json.
type folderResult struct {
	Path    string  `json:"path"`
	Kind    string  `json:"kind"` // "model" or "adapter"
	Format  string  `json:"format,omitempty"`
	Tensors int     `json:"tensors"` // weights, a coded one counting once
	Changed int     `json:"changed"` // those with other numbers or another type
	Before  int64   `json:"bytes_before"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func newFolderResult(path, kind string, r convert.Result) folderResult {
	return folderResult{Path: path, Kind: kind, Tensors: r.Tensors, Changed: r.Changed, Before: r.Before, Bytes: r.Bytes, Seconds: r.Took.Seconds()}
}

// write tells what was written, as one object or in a line.
func (r folderResult) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	format := ""
	if r.Format != "" {
		format = " as " + r.Format
	}
	_, err := fmt.Fprintf(w, "%s: %s%s, %s of %s changed, %v before, %v now, in %s\n", r.Path, r.Kind, format,
		grouped(int64(r.Changed)), plural(r.Tensors, "weight"), units.Bytes(r.Before), units.Bytes(r.Bytes), seconds(r.Seconds))
	return err
}

// writing shows how far a folder is written.
type writing struct {
	line  *term.Line
	start time.Time
}

func newWriting(sh shell) *writing { return &writing{term.NewLine(sh.err), time.Now()} }

// progress is for convert.Options.
func (w *writing) progress(done, total int64) {
	w.line.Show(func() string {
		rate := float64(done) / time.Since(w.start).Seconds()
		return fmt.Sprintf("%v of %v (%s), %v, %s left", units.Bytes(done), units.Bytes(total), percent(float64(done)/float64(total)),
			units.Rate(rate), seconds(float64(total-done)/rate))
	})
}

// parseShard reads --shard-size.
func parseShard(text string) (int64, error) {
	n, err := units.ParseBytes(text)
	if err != nil || n == 0 {
		return 0, usageErrorf("--shard-size %q; write it like 5GB", text)
	}
	return int64(n), nil
}

// parsePlain reads --dtype; "" leaves weights as they are.
func parsePlain(text string) (dtype.Type, error) {
	if text == "" {
		return dtype.Invalid, nil
	}
	t, err := dtype.Parse(text)
	if err != nil || !t.IsPlain() {
		return t, usageErrorf("--dtype %q; it is f32, bf16 or f16", text)
	}
	return t, nil
}
