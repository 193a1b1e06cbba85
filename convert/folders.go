package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/tensorfile"
)

// AdapterRef is an adapter's folder, or that of a run that trained one, and the factor of
// what it adds; see lora.Weighted.
type AdapterRef struct {
	Dir    string
	Weight float64
}

// openAdapters opens adapters; those that are open are closed with closeAdapters, also
// after an error.
func openAdapters(refs []AdapterRef) (list []lora.Weighted, notices []string, err error) {
	for _, r := range refs {
		dir := chosen(r.Dir, &notices)
		a, err := lora.Open(dir)
		if err != nil {
			return list, notices, fmt.Errorf("opening the adapter: %w", err)
		}
		list = append(list, lora.Weighted{Adapter: a, Weight: r.Weight})
	}
	return list, notices, nil
}

// chosen is the checkpoint to take of a run's folder, and any other folder itself.
func chosen(dir string, notices *[]string) string {
	path, notice := checkpoint.Choose(dir)
	if notice != "" {
		*notices = append(*notices, notice)
	}
	return path
}

func closeAdapters(list []lora.Weighted) (err error) {
	for _, w := range list {
		err = errors.Join(err, w.Adapter.Close())
	}
	return err
}

// Merge writes a copy of a model folder with adapters merged into its weights. Of a run's
// folder it takes the newest checkpoint, after an early stop the best.
func Merge(ctx context.Context, base string, refs []AdapterRef, dir string, o Options) (r Result, err error) {
	var notices []string
	o.Adapters, notices, err = openAdapters(refs)
	defer func() { err = errors.Join(err, closeAdapters(o.Adapters)) }()
	if err != nil {
		return r, err
	}
	from, err := hf.OpenOn(vfs.Ahead(vfs.OS), chosen(base, &notices))
	if err != nil {
		return r, fmt.Errorf("opening the model: %w", err)
	}
	defer from.Close() // opened for reading
	r, err = Folder(ctx, from, dir, o)
	r.Notices = notices
	return r, err
}

// Combine writes one adapter that adds what several add together.
func Combine(refs []AdapterRef, dir string) (r Result, err error) {
	start := time.Now()
	list, notices, err := openAdapters(refs)
	defer func() { err = errors.Join(err, closeAdapters(list)) }()
	if err != nil {
		return r, err
	}
	one, err := lora.Combine(dir, list)
	if err != nil {
		return r, err
	}
	folder, err := one.Folder(list[0].Adapter.Base)
	if err != nil {
		return r, err
	}
	r = Result{Tensors: len(folder.Tensors), Changed: len(folder.Tensors), Adapter: true, Notices: notices}
	if r.Bytes, err = folder.Bytes(); err != nil {
		return r, err
	}
	err = folder.Write(dir)
	r.Before, r.Took = r.Bytes, time.Since(start)
	return r, err
}

// ErrAdapter says that a folder holds an adapter where the weights of a model are wanted.
var ErrAdapter = errors.New("it has an adapter, not the weights of a model")

// Export writes a checkpoint for other programs, as a model or adapter folder. Its weights
// are of the type of linear weights in o, and its bytes are compared with their checksums
// first. Of a run's folder it takes the newest checkpoint, after an early stop the best; a
// model folder has no checksums.
func Export(ctx context.Context, from, dir string, o Options) (r Result, err error) {
	var notices []string
	from = chosen(from, &notices)
	defer func() { r.Notices = append(notices, r.Notices...) }()
	var with func(name string) (tensorfile.Tensor, bool)
	if saved, err := vfs.Exists(vfs.OS, filepath.Join(from, checkpoint.ManifestName)); err == nil && saved {
		c, err := checkpoint.Open(from)
		if err != nil {
			return r, fmt.Errorf("opening the checkpoint: %w", err)
		}
		defer c.Close() // opened for reading
		if o.Average {
			if with, err = average(c, o.Linear); err != nil {
				return r, err
			}
		}
	} else if o.Average {
		return r, fmt.Errorf("%s is no checkpoint of a run, which alone has an average of its weights; leave --average out", from)
	}
	if hf.IsAdapter(from) {
		if filepath.Ext(dir) == gguf.Extension {
			return r, fmt.Errorf("writing %s as a GGUF file: %w; merge it into its model first (spillway merge), and export that", from, ErrAdapter)
		}
		return exportAdapter(ctx, from, dir, o, with)
	}
	model, err := hf.Open(from)
	if err != nil {
		return r, fmt.Errorf("opening the checkpoint: %w", err)
	}
	defer model.Close() // opened for reading
	if with != nil {
		model.Replace(with)
	}
	if filepath.Ext(dir) == gguf.Extension {
		recipe := cmp.Or(o.GGUF, map[dtype.Type]string{dtype.F32: "f32", dtype.F16: "f16"}[model.Config.Type], "bf16")
		return GGUF(ctx, model, dir, recipe, o)
	}
	o.Others = o.Linear
	return Folder(ctx, model, dir, o)
}

func exportAdapter(ctx context.Context, from, dir string, o Options, with func(string) (tensorfile.Tensor, bool)) (r Result, err error) {
	if o.Offloaded {
		return r, fmt.Errorf("exporting %s for accelerate: %w", from, ErrAdapter)
	}
	f, err := hf.OpenAdapter(from)
	if err != nil {
		return r, err
	}
	defer f.Close() // opened for reading
	return adapter(ctx, f, dir, o.Linear, with)
}
