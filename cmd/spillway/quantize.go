package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/convert"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/quant/stored"
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
		Short: "a model folder with its linear weights in 4 or 8 bits",
		Long: `Writes a copy of a model folder with quantized linear weights. Embedding, norms and lm_head
stay as they are.

` + quantFormatsHelp() + `
The folder loads in transformers as it is, with the library in brackets. train --method qlora
takes it without quantizing again.

Weights stream from the old folder to the new one, some rows at a time: a model of any
size takes a few megabytes of memory. The folder appears when it is whole; Ctrl-C leaves
nothing behind.`,
		Example: `  spillway quantize ./model ./model-nf4
  spillway quantize ./model ./model-int8 --format int8
  spillway quantize ./model ./model-nf4 --no-quantize down_proj
  spillway quantize ./model ./model-nf4 --double-quant=false     scales in f32: 4.5 bits, a little more precise
  spillway init llama-3-70b --out big && spillway quantize big big-nf4`,
		Args: exactly(2, "MODEL OUT"),
	}
	asJSON := jsonFlag(cmd)
	var o quantizeOptions
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "nf4", "`"+quant.Aliases("|")+"`")
	f.BoolVar(&o.double, "double-quant", true, "quantize the scales of nf4 and fp4 too (double quantization)")
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

// quantFormatsHelp lists the formats that files can store weights in.
func quantFormatsHelp() string {
	var text strings.Builder
	for _, c := range quant.Weights() {
		if library := stored.Library(c.Type); library != "" {
			fmt.Fprintf(&text, "  %-6s %s (%s)\n", c.Alias, c.Title, library)
		}
	}
	return text.String()
}

func (o *quantizeOptions) quantize(ctx context.Context, sh shell, model, out string) (r folderResult, err error) {
	kind, err := quant.ParseWeights(o.format)
	if err != nil {
		return r, usageErrorf("--format: %v", err)
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
