package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
)

// quantizeOptions are the flags of quantize.
type quantizeOptions struct {
	format string
	double bool
	skip   []string
	shard  string
}

func newQuantize(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quantize MODEL OUT",
		Short: "a model folder with its products in 4 or 8 bits",
		Long: `Writes a copy of a model folder with the weights of its matrix products in few bits.
Embedding, norms and the output product stay as they are.

  nf4    4.1 bits: sixteen values spaced as weights are, a scale for every 64 of
         them; the usual choice for qlora
  fp4    4.1 bits: sixteen floats, otherwise the same
  int8   8 bits: whole numbers with a scale for every row (LLM.int8)
  fp8    8 bits: floats (e4m3) with a scale for every row

The folder loads in transformers as it is: nf4, fp4 and int8 with bitsandbytes, fp8 with
compressed-tensors. train --method qlora takes it without quantizing again.

Weights stream from the old folder to the new one, some rows at a time: a model of any
size takes a few megabytes of memory. The folder appears when it is whole; Ctrl-C leaves
nothing behind.`,
		Example: `  spillway quantize ./model ./model-nf4
  spillway quantize ./model ./model-int8 --format int8
  spillway quantize ./model ./model-nf4 --no-quantize down_proj
  spillway quantize ./model ./model-nf4 --double=false     scales in f32: 4.5 bits, a little more precise
  spillway init llama-3-70b --out big && spillway quantize big big-nf4`,
		Args: exactly(2, "MODEL OUT"),
	}
	asJSON := jsonFlag(cmd)
	var o quantizeOptions
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "nf4", "`nf4|fp4|int8|fp8`")
	f.BoolVar(&o.double, "double", true, "quantize the scales of nf4 and fp4 too (double quantization)")
	f.StringSliceVar(&o.skip, "no-quantize", nil, "`MODULES` that are left as they are: names or their last parts, or re:PATTERN of whole names")
	f.StringVar(&o.shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := o.quantize(cmd.Context(), sh, args[0], args[1])
		if err != nil {
			return err
		}
		return r.write(sh.out, *asJSON)
	}
	return cmd
}

// codedTypes are the formats by the names people know.
var quantFormats = map[string]dtype.Type{"nf4": quant.NF4, "fp4": quant.FP4, "int8": quant.RowI8, "fp8": quant.RowF8}

func (o *quantizeOptions) quantize(ctx context.Context, sh shell, model, out string) (r folderResult, err error) {
	kind, ok := quantFormats[o.format]
	if !ok {
		return r, usageErrorf("--format %q; it is nf4, fp4, int8 or fp8", o.format)
	}
	c := convert.Options{Linear: kind, NoDoubleQuant: !o.double, Skip: o.skip}
	if c.ShardBytes, err = parseShard(o.shard); err != nil {
		return r, err
	}
	from, err := hf.OpenOn(vfs.Ahead(vfs.OS), model)
	if err != nil {
		return r, fmt.Errorf("opening the model: %w", err)
	}
	defer from.Close() // opened for reading
	w := newWriting(sh)
	c.Progress = w.progress
	done, err := convert.Folder(ctx, from, out, c)
	w.line.Done()
	r = newFolderResult(out, "model", done)
	r.Format = o.format
	return r, err
}
