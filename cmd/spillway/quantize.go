package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway/convert"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/quant/stored"
)

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
	var format, shard string
	var double bool
	var skip []string
	f := cmd.Flags()
	f.StringVar(&format, "format", "nf4", "`"+strings.Join(stored.Written(), "|")+"`")
	complete(cmd, "format", stored.Written())
	f.BoolVar(&double, "double-quant", true, "quantize the scales of nf4 and fp4 too (double quantization)")
	f.StringSliceVar(&skip, "no-quantize", nil, "`MODULES` that are left as they are: names or their last parts, or re:PATTERN of whole names")
	f.StringVar(&shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, err := quant.ParseWeights(format)
		if err != nil || !slices.Contains(stored.Written(), quant.Of(kind).Alias) {
			return usageErrorf("--format %q: folders are written in %s; types of GGUF files are those of export --gguf-type", format, strings.Join(stored.Written(), ", "))
		}
		if f.Changed("double-quant") && quant.FourBitOf(kind) == nil {
			return usageErrorf("--double-quant has no effect: it is for the scales of nf4 and fp4, and --format is %s", format)
		}
		o, line, err := newWriting(sh, "", shard)
		if err != nil {
			return err
		}
		o.Linear, o.NoDoubleQuant, o.Skip = kind, !double, skip
		from, err := hf.OpenOn(vfs.Ahead(vfs.OS), args[0])
		if err != nil {
			return fmt.Errorf("opening the model: %w", err)
		}
		defer from.Close() // opened for reading
		done, err := convert.Folder(cmd.Context(), from, args[1], o)
		line.Done()
		if err != nil {
			return err
		}
		r := newFolderResult(args[1], done)
		r.Format = format
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
