package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"spillway/arch"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/term"
	"spillway/nn"
	"spillway/op"
	"spillway/spec"
	"spillway/tensorfile"
	"spillway/units"
	"spillway/weights"
)

// initOptions are the flags of init.
type initOptions struct {
	out, dtype string
	seed       uint64
	shard      string
}

func newInit(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init CONFIG|NAME --out DIR",
		Short: "a model folder with random weights, of any size",
		Long: `Writes a model folder with fresh weights: config.json, and safetensors in one file
or in shards. CONFIG is a config.json, or a folder that has one; NAME is a published
shape such as gpt2. Weights start as the architecture says, from the seed: the
same seed gives the same weights, whatever the shard size and the machine.

The weights are written as a stream, so the model may be far larger than memory.
The folder appears when it is whole; Ctrl-C leaves nothing behind.`,
		Example: `  spillway init gpt2 --out fresh-gpt2
  spillway init my-config.json --out fresh --dtype f32 --seed 7
  spillway init llama-3-70b --out big --shard-size 10GB`,
		Args: exactly(1, "CONFIG|NAME"),
	}
	asJSON := jsonFlag(cmd)
	var o initOptions
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "make the folder `DIR`, which must not exist")
	f.StringVar(&o.dtype, "dtype", "", "element type of the weights, `bf16|f16|f32` (default: what the config says, else bf16)")
	f.Uint64Var(&o.seed, "seed", 0, "derive the weights from `N`")
	f.StringVar(&o.shard, "shard-size", "5GB", "split the weights into files of at most `SIZE`; a larger tensor has a file to itself")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := initFolder(cmd.Context(), sh, args[0], o)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(sh.out, r)
		}
		_, err = fmt.Fprintf(sh.out, "%s: %s params as %s, %v in %s\n", r.Path, units.Count(r.Params), r.DType, units.Bytes(r.Bytes), seconds(r.Seconds))
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

func initFolder(ctx context.Context, sh shell, arg string, o initOptions) (*initReport, error) {
	if o.out == "" {
		return nil, usageErrorf("--out is missing: name the folder to make")
	}
	shard, err := units.ParseBytes(o.shard)
	if err != nil || shard == 0 {
		return nil, usageErrorf("--shard-size %q; write it like 5GB", o.shard)
	}
	config, params, err := initModel(arg, o.dtype)
	if err != nil {
		return nil, err
	}
	from, err := weights.Random(params, o.seed)
	if err != nil {
		return nil, err
	}
	w := &initWriter{ctx: ctx, from: from, line: term.NewLine(sh.err), start: time.Now()}
	r := &initReport{Path: o.out, Tensors: len(params), DType: config.Type.String(), Seed: o.seed}
	m := hf.Model{Config: config, ShardBytes: int64(shard)}
	for _, p := range params {
		r.Params += p.Type.Shape.Elements()
		m.Tensors = append(m.Tensors, w.source(p))
	}
	if r.Bytes, err = m.Bytes(); err != nil {
		return nil, err
	}
	w.total = r.Bytes
	err = m.Write(o.out)
	w.line.Done()
	r.Seconds = time.Since(w.start).Seconds()
	return r, err
}

// freshModel is the config to write, and the params it asks for in the type wanted.
func initModel(arg, asType string) (*hf.Config, []spec.Param, error) {
	raw, err := findConfig(arg)
	if err != nil {
		return nil, nil, err
	}
	config, err := hf.ParseConfig(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the config of %s: %w", arg, err)
	}
	if asType != "" {
		if config.Type, err = dtype.Parse(asType); err != nil {
			return nil, nil, usageError{err}
		}
	} else if config.Type == dtype.Invalid {
		config.Type = dtype.BF16
	}
	if !config.Type.IsPlain() {
		return nil, nil, usageErrorf("--dtype %v; weights can start as bf16, f16 or f32", config.Type)
	}
	net, _, err := arch.FromConfig(raw)
	if err != nil {
		return nil, nil, err
	}
	bound, err := nn.Bind(net)
	params := make([]spec.Param, len(bound))
	for i, p := range bound {
		params[i] = spec.Param{Name: p.Name, Type: op.Type{DType: config.Type, Shape: p.Shape}, Init: p.Init}
	}
	return config, params, err
}

// findConfig reads a config.json by its path, that of its folder, or the name of a
// published shape.
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

// freshWriter makes and writes weights piece by piece, and shows how far it is.
type initWriter struct {
	ctx   context.Context
	from  weights.Values
	line  *term.Line
	start time.Time
	done  int64 // bytes
	total int64
}

// pieceElements is how many weights a core makes at a time.
const pieceElements = 1 << 18

func (w *initWriter) source(p spec.Param) tensorfile.Output {
	return tensorfile.Output{Name: p.Name, Type: p.Type.DType, Shape: p.Type.Shape, Write: func(to io.Writer) error {
		pieces := newPieces(w.from, p)
		for !pieces.ended() {
			if err := w.ctx.Err(); err != nil {
				return fmt.Errorf("interrupted with %v of %v written: %w", units.Bytes(w.done), units.Bytes(w.total), err)
			}
			if err := w.round(pieces, to); err != nil {
				return err
			}
		}
		return nil
	}}
}

// round makes a piece on every core, then writes them in order.
func (w *initWriter) round(p *pieces, to io.Writer) error {
	made, err := p.next()
	for _, piece := range made {
		if err != nil {
			break
		}
		_, err = to.Write(piece)
		w.done += int64(len(piece))
	}
	w.line.Show(w.progress)
	return err
}

func (w *initWriter) progress() string {
	took := time.Since(w.start).Seconds()
	rate := float64(w.done) / took
	return fmt.Sprintf("%v of %v (%s), %v, %s left", units.Bytes(w.done), units.Bytes(w.total), percent(float64(w.done)/float64(w.total)),
		units.Rate(rate), seconds(float64(w.total-w.done)/rate))
}

// pieces of a param, made a round at a time, one per core. The memory is reused.
type pieces struct {
	from    weights.Values
	param   spec.Param
	at, end int64 // elements
	floats  [][]float32
	bytes   [][]byte
}

func newPieces(from weights.Values, p spec.Param) *pieces {
	n := p.Type.Shape.Elements()
	cores := int(min(int64(runtime.GOMAXPROCS(0)), (n+pieceElements-1)/pieceElements))
	s := &pieces{from: from, param: p, end: n}
	for range cores {
		s.floats = append(s.floats, make([]float32, min(n, pieceElements)))
		s.bytes = append(s.bytes, make([]byte, p.Type.DType.Bytes(min(n, pieceElements))))
	}
	return s
}

func (p *pieces) ended() bool { return p.at >= p.end }

// next gives the bytes of the next round, valid until the one after.
func (p *pieces) next() ([][]byte, error) {
	var wait sync.WaitGroup
	var made [][]byte
	errs := make([]error, len(p.floats))
	for i := range p.floats {
		n := min(pieceElements, p.end-p.at)
		if n <= 0 {
			break
		}
		first, floats, bytes := p.at, p.floats[i][:n], p.bytes[i][:p.param.Type.DType.Bytes(n)]
		p.at += n
		made = append(made, bytes)
		wait.Go(func() {
			errs[i] = p.from.Read(p.param.Name, first, floats)
			p.param.Type.DType.Encode(bytes, floats)
		})
	}
	wait.Wait()
	return made, errors.Join(errs...)
}
