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
	Path    string   `json:"path"`
	Kind    string   `json:"kind"` // "model" or "adapter"
	Format  string   `json:"format,omitempty"`
	Tensors int      `json:"tensors"` // weights, a coded one counting once
	Changed int      `json:"changed"` // those with other numbers or another type
	Before  int64    `json:"bytes_before"`
	Bytes   int64    `json:"bytes"`
	Seconds float64  `json:"seconds"`
	Notices []string `json:"notices,omitempty"`
}

func newFolderResult(path string, r convert.Result) folderResult {
	kind := "model"
	if r.Adapter {
		kind = "adapter"
	}
	return folderResult{Path: path, Kind: kind, Tensors: r.Tensors, Changed: r.Changed, Before: r.Before, Bytes: r.Bytes, Seconds: r.Took.Seconds(), Notices: r.Notices}
}

// write tells what was written, as one object or in a line.
func (r folderResult) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	for _, n := range r.Notices {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return err
		}
	}
	format := ""
	if r.Format != "" {
		format = " as " + r.Format
	}
	_, err := fmt.Fprintf(w, "%s: %s%s, %s of %s changed, %v before, %v now, in %s\n", r.Path, r.Kind, format,
		grouped(int64(r.Changed)), plural(r.Tensors, "weight"), units.Bytes(r.Before), units.Bytes(r.Bytes), units.Seconds(r.Seconds))
	return err
}

// newWriting reads --dtype, "" for types as they are, and --shard-size, and shows on a line
// how far a folder is written.
func newWriting(sh shell, asType, shard string) (o convert.Options, line *term.Line, err error) {
	if asType != "" {
		if o.Linear, err = dtype.ParsePlain(asType); err != nil {
			return o, nil, usageErrorf("--dtype %q; it is bf16, f16 or f32", asType)
		}
	}
	size, err := units.ParseBytes(shard)
	if err != nil || size == 0 {
		return o, nil, usageErrorf("--shard-size %q; write it like 5GB", shard)
	}
	line, start := term.NewLine(sh.err), time.Now()
	o.ShardBytes, o.Progress = int64(size), func(done, total int64) {
		line.Show(func() string {
			rate := float64(done) / time.Since(start).Seconds()
			return fmt.Sprintf("%v of %v (%s), %v, %s left", units.Bytes(done), units.Bytes(total), percent(float64(done)/float64(total)),
				units.Rate(rate), units.Seconds(float64(total-done)/rate))
		})
	}
	return o, line, nil
}
