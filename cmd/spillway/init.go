package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"spillway/arch"
	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
	"spillway/units"
)

func newInit(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init CONFIG|NAME --out DIR",
		Short: "a model folder with random weights, of any size",
		Long: `Writes a model folder with random initial weights: config.json, and safetensors in one file
or in shards. CONFIG is a config.json, or a folder that has one; NAME is a preset
such as gpt2. Weights start as the architecture says, from the seed: the
same seed gives the same weights, whatever the shard size and the machine.

The weights are written as a stream, so the model may be far larger than memory.
The folder appears when it is whole; Ctrl-C leaves nothing behind.`,
		Example: `  spillway init gpt2 --out random-gpt2
  spillway init my-config.json --out random --dtype f32 --seed 7
  spillway init llama-3-70b --out big --shard-size 10GB`,
		Args: exactly(1, "CONFIG|NAME"),
	}
	asJSON := jsonFlag(cmd)
	completeModels(cmd)
	var out, asType, shard string
	var seed uint64
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "make the folder `DIR`, which must not exist")
	f.StringVar(&asType, "dtype", "", "element type of the weights, `bf16|f16|f32` (default: what the config says, else bf16)")
	f.Uint64Var(&seed, "seed", 0, "derive the weights from `N`")
	f.StringVar(&shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`; a larger tensor has a file to itself")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return usageErrorf("--out is missing: name the folder to make")
		}
		o, line, err := newWriting(sh, asType, shard)
		if err != nil {
			return err
		}
		config, err := initConfig(args[0], o.Linear)
		if err != nil {
			return err
		}
		done, err := convert.Random(cmd.Context(), config, out, seed, o)
		line.Done()
		if err != nil {
			return err
		}
		r := initReport{Path: out, Params: done.Params, Tensors: done.Tensors, Bytes: done.Bytes, DType: config.Type.String(), Seed: seed, Seconds: done.Took.Seconds()}
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		_, err = fmt.Fprintf(sh.out, "%s: %s params as %s, %v in %s\n", r.Path, units.Count(r.Params), r.DType, units.Bytes(r.Bytes), units.Seconds(r.Seconds))
		return err
	}
	return cmd
}

// initReport is the object of init --json.
type initReport struct {
	Path    string  `json:"path"`
	Params  int64   `json:"params"`
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"` // of the weights
	DType   string  `json:"dtype"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
}

// initConfig is the config to write, with the type of weights that is wanted; where that is
// Invalid, the one it has.
func initConfig(arg string, as dtype.Type) (*hf.Config, error) {
	raw, err := findConfig(arg)
	if err != nil {
		return nil, err
	}
	config, err := hf.ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the config of %s: %w", arg, err)
	}
	config.Type = cmp.Or(as, config.Type, dtype.BF16)
	if !config.Type.IsPlain() {
		return nil, usageErrorf("the config has weights of type %v; give --dtype bf16, f16 or f32", config.Type)
	}
	return config, nil
}

// findConfig reads a config.json by its path, that of its folder, or the name of a
// preset.
func findConfig(arg string) ([]byte, error) {
	raw, err := os.ReadFile(arg)
	switch {
	case err == nil:
		return raw, nil
	case errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(arg, ".json"):
		return arch.Preset(arg)
	}
	if stat, statErr := os.Stat(arg); statErr == nil && stat.IsDir() {
		raw, err = os.ReadFile(arg + "/" + hf.ConfigName)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the config of %s: %w", arg, err)
	}
	return raw, nil
}
