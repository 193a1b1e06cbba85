package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/hub"
	"spillway/internal/term"
	"spillway/units"
)

func newPull(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull ORG/NAME",
		Short: "fetch a model of the Hugging Face hub into its cache on disk",
		Long: `Fetches what is missing of a model into the cache that huggingface_hub keeps, so that both
programs read what the other one fetched: config, tokenizer, and one kind of weights
(safetensors where there are some, else GGUF, else .bin). ORG/NAME@REVISION takes a
branch, tag or commit. Then every command takes ORG/NAME for the model's folder.

Checksums are compared. What was fetched in part is kept: pull again to go on. The
environment is that of huggingface_hub: HF_TOKEN for private models, HF_ENDPOINT for a
mirror, HF_HOME or HF_HUB_CACHE for another place.`,
		Example: `  spillway pull org/name
  spillway pull org/name --file '*Q4_K_M*'
  HF_ENDPOINT=https://mirror.example spillway pull org/name@v1.0`,
		Args: exactly(1, "ORG/NAME"),
	}
	asJSON := jsonFlag(cmd)
	var files []string
	cmd.Flags().StringSliceVar(&files, "file", nil, "fetch files that match `PATTERN` instead of the usual weights; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		line, start := term.NewLine(sh.err), time.Now()
		o := hub.Options{Files: files, Progress: func(have, total int64) {
			line.Show(func() string {
				return fmt.Sprintf("%v of %v (%s)", units.Bytes(have), units.Bytes(total), percent(float64(have)/float64(max(total, 1))))
			})
		}}
		got, err := hub.Pull(cmd.Context(), args[0], o)
		line.Done()
		if err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		if *asJSON {
			return writeJSON(sh.out, pulled{got.Dir, got.Commit, got.Files, got.Bytes, got.Fetched, took})
		}
		fetched := "nothing was missing"
		if got.Fetched > 0 {
			fetched = fmt.Sprintf("%v fetched in %s", units.Bytes(got.Fetched), units.Seconds(took))
		}
		_, err = fmt.Fprintf(sh.out, "%s: %s, %v, %s\n", got.Dir, plural(got.Files, "file"), units.Bytes(got.Bytes), fetched)
		return err
	}
	return cmd
}

// pulled is what pull --json writes.
type pulled struct {
	Path    string  `json:"path"`
	Commit  string  `json:"commit"`
	Files   int     `json:"files"`
	Bytes   int64   `json:"bytes"`
	Fetched int64   `json:"fetched_bytes"`
	Seconds float64 `json:"seconds"`
}
