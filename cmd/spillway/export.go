package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"spillway/checkpoint"
	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
)

// exportOptions are the flags of export.
type exportOptions struct {
	dtype, shard string
	offloaded    bool
}

func newExport(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export CHECKPOINT OUT",
		Short: "a checkpoint as a folder for other programs, without optimizer state",
		Long: `Writes the result of a training run for other programs. CHECKPOINT is a run's folder, of
which the newest checkpoint is used, one of its checkpoints, or a model folder.

If the run trained all weights, OUT is a model folder with config, tokenizer and weights. If
it trained adapters, OUT is an adapter folder as PEFT writes it; merge makes a whole model of
it. --dtype converts the weights to another type; quantized ones are dequantized.
--offload-folder writes each weight to a file of its own, with an index.json, as accelerate's
offload_folder has them; such folders can be opened here too.

Every byte of a checkpoint is compared with its checksum first. The folder appears when it is
complete; Ctrl-C leaves nothing behind.`,
		Example: `  spillway export ./run ./my-model --dtype bf16
  spillway export ./run/step-00000500 ./my-model
  spillway export ./lora-run ./my-adapter
  spillway export ./my-model ./offload --offload-folder`,
		Args: exactly(2, "CHECKPOINT OUT"),
	}
	asJSON := jsonFlag(cmd)
	var o exportOptions
	f := cmd.Flags()
	f.StringVar(&o.dtype, "dtype", "", "write the weights as `bf16|f16|f32` (default: as they are)")
	f.StringVar(&o.shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`")
	f.BoolVar(&o.offloaded, "offload-folder", false, "write each weight to a file of its own, as accelerate's offload_folder has them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := o.export(cmd.Context(), sh, args[0], args[1])
		if err != nil {
			return err
		}
		return r.write(sh.out, *asJSON)
	}
	return cmd
}

func (o *exportOptions) export(ctx context.Context, sh shell, from, out string) (r folderResult, err error) {
	t, err := parsePlain(o.dtype)
	if err != nil {
		return r, err
	}
	shard, err := parseShard(o.shard)
	if err != nil {
		return r, err
	}
	dir := checkpoint.Newest(from)
	if err := verifyCheckpoint(dir); err != nil {
		return r, err
	}
	if hf.IsAdapter(dir) && o.offloaded {
		return r, usageErrorf("--offload-folder is for the weights of a model, %s has an adapter", dir)
	}
	if hf.IsAdapter(dir) {
		return exportAdapter(ctx, dir, out, t)
	}
	model, err := hf.Open(dir)
	if err != nil {
		return r, fmt.Errorf("opening the checkpoint: %w", err)
	}
	defer model.Close() // opened for reading
	w := newWriting(sh)
	done, err := convert.Folder(ctx, model, out, convert.Options{Linear: t, Others: t, ShardBytes: shard, Offloaded: o.offloaded, Progress: w.progress})
	w.line.Done()
	return newFolderResult(out, "model", done), err
}

func exportAdapter(ctx context.Context, dir, out string, t dtype.Type) (r folderResult, err error) {
	f, err := hf.OpenAdapter(dir)
	if err != nil {
		return r, err
	}
	defer f.Close() // opened for reading
	done, err := convert.Adapter(ctx, f, out, t)
	return newFolderResult(out, "adapter", done), err
}

// verifyCheckpoint compares a checkpoint with its checksums; other folders have none.
func verifyCheckpoint(dir string) error {
	_, err := os.Stat(filepath.Join(dir, checkpoint.ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the checkpoint: %w", err)
	}
	return c.Close()
}
