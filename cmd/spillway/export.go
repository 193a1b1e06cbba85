package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"spillway/checkpoint"
	"spillway/convert"
	"spillway/gguf"
	"spillway/hf"
	"spillway/recipe"
)

func newExport(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "export CHECKPOINT OUT",
		Aliases: []string{"convert"},
		Short:   "a checkpoint as a folder for other programs, without optimizer state",
		Long: `Writes the result of a training run for other programs. CHECKPOINT is a run's folder, of
which the newest checkpoint is used, one of its checkpoints, or a model in any form: a
folder, a GGUF file, PyTorch's .bin files, a name of the hub's cache.

If the run trained all weights, OUT is a model folder with config, tokenizer and weights. If
it trained adapters, OUT is an adapter folder as PEFT writes it; merge makes a whole model of
it. --dtype converts the weights to another type; quantized ones are dequantized.
--offload-folder writes each weight to a file of its own, with an index.json, as accelerate's
offload_folder has them; such folders can be opened here too.

If OUT ends in .gguf, it is one GGUF file with config, tokenizer and template inside, for
llama.cpp and what is built on it; --gguf-type says how its tensors are stored.

Every byte of a checkpoint is compared with its checksum first. The folder appears when it is
complete; Ctrl-C leaves nothing behind.`,
		Example: `  spillway export ./run ./my-model --dtype bf16
  spillway export ./run/step-00000500 ./my-model
  spillway export ./lora-run ./my-adapter
  spillway export ./my-model ./offload --offload-folder
  spillway export ./my-model ./my-model.gguf --gguf-type q8_0`,
		Args: exactly(2, "CHECKPOINT OUT"),
	}
	asJSON := jsonFlag(cmd)
	var asType, shard, ggufType, tokenizer string
	var offloaded, average bool
	f := cmd.Flags()
	f.StringVar(&asType, "dtype", "", "write the weights as `bf16|f16|f32` (default: as they are)")
	f.StringVar(&shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`")
	f.BoolVar(&offloaded, "offload-folder", false, "write each weight to a file of its own, as accelerate's offload_folder has them")
	f.BoolVar(&average, "average", false, "write the average of the weights that a run with --ema kept, or that schedule_free_adamw is evaluated with, instead of the weights")
	f.StringVar(&ggufType, "gguf-type", "", "store the tensors of a GGUF file as `"+strings.Join(gguf.Recipes(), "|")+"` (default: the type of the model)")
	complete(cmd, "gguf-type", gguf.Recipes())
	f.StringVar(&tokenizer, "tokenizer", "", "write the tokenizer in `FILE`: a tokenizer.json or, into a GGUF file, a .bin of llama2.c (default: the one that the run was trained with, or the model's)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ggufFlags(cmd, filepath.Ext(args[1]) == gguf.Extension); err != nil {
			return err
		}
		if offloaded && f.Changed("shard-size") {
			return usageErrorf("--shard-size has no effect with --offload-folder, which writes a file for each weight")
		}
		for name, because := range map[string]string{"shard-size": "which is one file", "tokenizer": "which has no tokenizer"} {
			if f.Changed(name) && hf.IsAdapter(checkpoint.Newest(args[0])) {
				return usageErrorf("--%s has no effect: %s has an adapter, %s", name, args[0], because)
			}
		}
		o, line, err := newWriting(sh, asType, shard)
		if err != nil {
			return err
		}
		if !hf.IsAdapter(checkpoint.Newest(args[0])) && tokenizer == "" {
			if tokenizer, err = runsTokenizer(args[0]); err != nil {
				return err
			}
			what := "it is written too"
			if filepath.Ext(args[1]) != gguf.Extension && tokenizer != "" {
				if _, err := os.Stat(tokenizer); err != nil {
					what = "it is not there any more, so the folder has none of it; --tokenizer names another"
				} else if filepath.Ext(tokenizer) == ".bin" {
					what = "no model folder can have it, only a GGUF file"
				}
			}
			if tokenizer != "" {
				fmt.Fprintf(sh.err, "the run was trained with --tokenizer %s: %s\n", tokenizer, what)
			}
			if what != "it is written too" {
				tokenizer = ""
			}
		}
		o.Offloaded, o.GGUF, o.Tokenizer, o.Average = offloaded, ggufType, tokenizer, average
		done, err := convert.Export(cmd.Context(), args[0], args[1], o)
		line.Done()
		if errors.Is(err, convert.ErrAdapter) && offloaded {
			return usageErrorf("--offload-folder: %w", err)
		}
		if err != nil {
			return err
		}
		return newFolderResult(args[1], done).write(sh.out, *asJSON)
	}
	return cmd
}

// runsTokenizer is the tokenizer that a run was given; "" where it took the model's
// own, or this is no run.
func runsTokenizer(name string) (string, error) {
	path, _ := checkpoint.Choose(name)
	if !checkpoint.Is(path) {
		return "", nil
	}
	r := recipe.New()
	r.Output.Dir = filepath.Dir(path)
	if err := r.ReadRun(); err != nil || r.Data.Tokenizer == "bytes" {
		return "", err // bytes are no file
	}
	return r.Data.Tokenizer, nil
}

// ggufFlags refuses flags that have no effect on a GGUF file, and those that have one on
// nothing else.
func ggufFlags(cmd *cobra.Command, isGGUF bool) error {
	f := cmd.Flags()
	if name := "gguf-type"; !isGGUF && f.Changed(name) {
		return usageErrorf("--%s has no effect: the name of a GGUF file ends in %s", name, gguf.Extension)
	}
	for _, name := range []string{"dtype", "shard-size", "offload-folder"} {
		if isGGUF && f.Changed(name) {
			return usageErrorf("--%s has no effect on a GGUF file; --gguf-type says how its tensors are stored", name)
		}
	}
	if name, _ := f.GetString("gguf-type"); name != "" {
		if _, err := gguf.NewRecipe(name, 0, false); err != nil {
			return usageErrorf("--gguf-type: %w", err)
		}
	}
	return nil
}
