package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/convert"
)

// mergeOptions are the flags of merge.
type mergeOptions struct {
	dtype, shard  string
	undo, combine bool
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
		for _, name := range []string{"dtype", "shard-size"} {
			if o.combine && f.Changed(name) {
				return usageErrorf("--%s has no effect with --combine: an adapter is one file in f32; export converts it", name)
			}
		}
		r, err := mergeFolders(cmd.Context(), sh, args, o)
		if err != nil {
			return err
		}
		return r.write(sh.out, *asJSON)
	}
	return cmd
}

// mergeFolders merges adapters into a model, or combines them.
func mergeFolders(ctx context.Context, sh shell, args []string, o mergeOptions) (r folderResult, err error) {
	from, out := args[1:len(args)-1], args[len(args)-1]
	if o.combine {
		from = args[:len(args)-1]
	}
	var list []convert.AdapterRef
	for _, arg := range from {
		a, err := parseAdapter(arg)
		if err != nil {
			return r, err
		}
		if o.undo {
			a.Weight = -a.Weight
		}
		list = append(list, a)
	}
	if o.combine {
		done, err := convert.Combine(list, out)
		return newFolderResult(out, done), err
	}
	c, w, err := newWriting(sh, o.dtype, o.shard)
	if err != nil {
		return r, err
	}
	defer w.Done()
	c.Others = c.Linear
	done, err := convert.Merge(ctx, args[0], list, out, c)
	return newFolderResult(out, done), err
}

// parseAdapter reads an adapter given as DIR or DIR=WEIGHT.
func parseAdapter(arg string) (convert.AdapterRef, error) {
	at := strings.LastIndexByte(arg, '=')
	if at < 0 {
		return convert.AdapterRef{Dir: arg, Weight: 1}, nil
	}
	weight, err := strconv.ParseFloat(arg[at+1:], 64)
	if err != nil {
		err = usageErrorf("%q; write an adapter as DIR or DIR=0.5", arg)
	}
	return convert.AdapterRef{Dir: arg[:at], Weight: weight}, err
}
