package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/checkpoint"
	"spillway/convert"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
)

// mergeOptions are the flags of merge.
type mergeOptions struct {
	dtype   string
	shard   string
	undo    bool
	combine bool
}

func newMerge(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge BASE ADAPTER... OUT",
		Short: "adapters merged into a model's weights",
		Long: `Writes a copy of the model folder BASE with adapters added to its weights: a model that
gives the same answers and no longer needs the adapters. ADAPTER is a folder as PEFT writes
it, or the folder of a run of train --method lora or qlora, of which the newest checkpoint
is used.

Several adapters are added up; ADAPTER=0.5 scales one by half. --unmerge subtracts what was
merged before, up to rounding. DoRA cannot be unmerged, because its magnitudes cannot be
recovered from the merged weights.

A quantized base stays quantized: each weight is dequantized, added to and quantized again
in its own format, which rounds what the adapter learned. For the best quality merge into
the original weights, or dequantize with --dtype bf16.

With --combine there is no BASE: all but the last argument are adapters, and OUT is one
adapter that adds what they add together.

Weights stream, so a model of any size takes little memory. The folder appears when it is
complete; Ctrl-C leaves nothing behind.`,
		Example: `  spillway merge ./model ./run ./merged                     the newest checkpoint of a run
  spillway merge ./model ./style=0.7 ./facts=0.5 ./merged   two adapters, weighted
  spillway merge ./model-nf4 ./adapter ./merged --dtype bf16
  spillway merge ./merged ./adapter ./model-again --unmerge
  spillway merge ./style=0.7 ./facts=0.5 ./both --combine   one adapter of two`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return usageErrorf("%d arguments given, it takes at least 3: BASE ADAPTER... OUT", len(args))
			}
			return nil
		},
	}
	asJSON := jsonFlag(cmd)
	var o mergeOptions
	f := cmd.Flags()
	f.StringVar(&o.dtype, "dtype", "", "write all weights as `bf16|f16|f32` (default: as they are)")
	f.StringVar(&o.shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`")
	f.BoolVar(&o.undo, "unmerge", false, "subtract the adapters again")
	f.BoolVar(&o.combine, "combine", false, "make one adapter of several")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := o.merge(cmd.Context(), sh, args)
		if err != nil {
			return err
		}
		return r.write(sh.out, *asJSON)
	}
	return cmd
}

func (o *mergeOptions) merge(ctx context.Context, sh shell, args []string) (r folderResult, err error) {
	out := args[len(args)-1]
	if o.combine {
		return o.combined(args[:len(args)-1], out)
	}
	list, err := openAdapters(args[1:len(args)-1], o.undo)
	defer func() { err = errors.Join(err, closeAdapters(list)) }()
	if err != nil {
		return r, err
	}
	c := convert.Options{Adapters: list}
	if c.Linear, err = parsePlain(o.dtype); err != nil {
		return r, err
	}
	c.Others = c.Linear
	if c.ShardBytes, err = parseShard(o.shard); err != nil {
		return r, err
	}
	from, err := hf.OpenOn(vfs.Ahead(vfs.OS), checkpoint.Newest(args[0]))
	if err != nil {
		return r, fmt.Errorf("opening the model: %w", err)
	}
	defer from.Close() // opened for reading
	w := newWriting(sh)
	c.Progress = w.progress
	done, err := convert.Folder(ctx, from, out, c)
	w.line.Done()
	return newFolderResult(out, "model", done), err
}

// combined writes one adapter of several.
func (o *mergeOptions) combined(from []string, out string) (r folderResult, err error) {
	list, err := openAdapters(from, o.undo)
	defer func() { err = errors.Join(err, closeAdapters(list)) }()
	if err != nil {
		return r, err
	}
	one, err := lora.Combine(out, list)
	if err != nil {
		return r, err
	}
	folder, err := one.Folder(list[0].Adapter.Base)
	if err != nil {
		return r, err
	}
	if err := folder.Write(out); err != nil {
		return r, err
	}
	r = folderResult{Path: out, Kind: "adapter", Tensors: len(folder.Tensors), Changed: len(folder.Tensors)}
	r.Bytes, err = folder.Bytes()
	r.Before = r.Bytes
	return r, err
}

// openAdapters opens adapters given as DIR or DIR=WEIGHT. Those that are open are to be
// closed also after an error.
func openAdapters(args []string, undo bool) (list []lora.Weighted, err error) {
	for _, arg := range args {
		dir, weight := arg, 1.0
		if at := strings.LastIndexByte(arg, '='); at >= 0 {
			dir = arg[:at]
			if weight, err = strconv.ParseFloat(arg[at+1:], 64); err != nil {
				return list, usageErrorf("%q; write an adapter as DIR or DIR=0.5", arg)
			}
		}
		if undo {
			weight = -weight
		}
		a, err := lora.Open(checkpoint.Newest(dir))
		if err != nil {
			return list, fmt.Errorf("opening the adapter: %w", err)
		}
		list = append(list, lora.Weighted{Adapter: a, Weight: weight})
	}
	return list, nil
}

func closeAdapters(list []lora.Weighted) error {
	var errs []error
	for _, w := range list {
		errs = append(errs, w.Adapter.Close())
	}
	return errors.Join(errs...)
}
