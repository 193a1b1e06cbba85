package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/inspect"
	"spillway/internal/term"
	"spillway/units"
)

func newInspect(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "what is in a model or adapter folder, and what is wrong with it",
		Long: `Shows what a model folder holds: the model that its config describes, the files, element
types and number of its weights, and its tokenizer. Every tensor is compared with what the
architecture needs. Missing and unknown tensors, and those of a wrong shape, are listed as
problems, and the exit code is 1 if there are any.

An adapter folder, as PEFT and train --method lora write it, is shown with its options. Of a
training checkpoint it also shows the optimizer state. If DIR is the folder of a run, its
newest checkpoint is shown.

Only headers are read, so a folder of any size takes no time. --verify reads all of a
checkpoint and compares it with its checksums.`,
		Example: `  spillway inspect ./model
  spillway inspect ./model --tensors     with every tensor, its type, shape and file
  spillway inspect ./run --verify        the newest checkpoint of a run, every byte checked
  spillway inspect ./model --json`,
		Args: exactly(1, "DIR"),
	}
	asJSON := jsonFlag(cmd)
	tensors := cmd.Flags().Bool("tensors", false, "list every tensor")
	verify := cmd.Flags().Bool("verify", false, "read all of a checkpoint and compare it with its checksums")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		r, err := inspect.Folder(args[0], inspect.Options{Tensors: *tensors, Verify: *verify})
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		} else {
			err = writeFolder(sh.out, r)
		}
		if err == nil && len(r.Problems) > 0 {
			err = errReported
		}
		return err
	}
	return cmd
}

// shownProblems is how many are shown; --json has all.
const shownProblems = 12

// writeFolder shows what a folder holds.
func writeFolder(w io.Writer, r *inspect.Report) error {
	var p page
	kind := "folder"
	if info, err := os.Stat(r.Path); err == nil && !info.IsDir() {
		kind = "file"
	}
	p.line(kind, "%s", r.Path)
	if r.Model != nil {
		p.line("model", "%s, %s, context %s", r.Model.Arch, modelLine(*r.Model), grouped(r.Model.Context))
	}
	if r.Adapter != nil {
		p.line("adapter", "%s", adapterLine(r.Adapter))
	}
	p.list("weights", weightLines(r))
	if r.Adapter == nil {
		p.line("tokenizer", "%s", tokenizerLine(r.Tokenizer))
	}
	if r.Checkpoint != nil {
		p.line("checkpoint", "%s", checkpointLine(r.Checkpoint))
	}
	if len(r.Notices) > 0 {
		p.list("notices", r.Notices)
	}
	problems := r.Problems
	if n := len(problems); n > shownProblems {
		problems = append(problems[:shownProblems:shownProblems], fmt.Sprintf("and %d more; --json lists all", n-shownProblems))
	}
	p.list("problems", orNone(problems))
	if len(r.Tensors) > 0 {
		p.WriteString("\n")
		tensorTable(&p, r)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func weightLines(r *inspect.Report) []string {
	if len(r.Files) == 0 {
		return []string{"none"}
	}
	var bytes int64
	for _, f := range r.Files {
		bytes += f.Bytes
	}
	lines := []string{fmt.Sprintf("%v in %s", units.Bytes(bytes), plural(len(r.Files), "file"))}
	for _, t := range slices.SortedFunc(slices.Values(r.Types), func(a, b inspect.Type) int { return cmp.Compare(b.Bytes, a.Bytes) }) {
		lines = append(lines, fmt.Sprintf("%s: %s params in %s, %v", t.Type, units.Count(t.Params), plural(t.Tensors, "tensor"), units.Bytes(t.Bytes)))
	}
	for _, format := range slices.Sorted(maps.Keys(r.Quantized)) {
		lines = append(lines, fmt.Sprintf("%s are %s", plural(r.Quantized[format], "weight"), format))
	}
	return lines
}

// tokenizerLine is a tokenizer in a line.
func tokenizerLine(t inspect.Tokenizer) string {
	text := strings.Join(orNone(t.Files), ", ")
	if t.Vocabulary > 0 {
		text += fmt.Sprintf(" (%s tokens)", grouped(int64(t.Vocabulary)))
	}
	return text
}

func tensorTable(w io.Writer, r *inspect.Report) {
	var t term.Table
	t.Row("tensor", "type", "shape", "size", "file")
	for _, x := range r.Tensors {
		t.Row(x.Name, x.Type, fmt.Sprint(x.Shape), units.Bytes(x.Bytes).String(), x.File)
	}
	t.Write(w) // a page takes everything
}

func orNone(list []string) []string {
	if len(list) == 0 {
		return []string{"none"}
	}
	return list
}

// adapterLine is an adapter in a line.
func adapterLine(a *inspect.Adapter) string {
	text := strings.Join(append([]string{fmt.Sprintf("rank %d, alpha %v, of %s", a.Rank, a.Alpha, a.Targets)}, a.Special...), ", ")
	if a.Base != "" {
		text += "; for " + a.Base
	}
	return text
}

// checkpointLine is the state of a checkpoint in a line.
func checkpointLine(r *inspect.Checkpoint) string {
	text := fmt.Sprintf("step %s, %s, %s of state in %s", grouped(r.Iteration), r.Optimizer, units.Bytes(r.Bytes), plural(r.Tensors, "tensor"))
	if r.Verified {
		text += ", checksums right"
	}
	return text
}
