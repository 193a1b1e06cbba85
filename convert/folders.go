package convert

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"spillway/checkpoint"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
)

// AdapterRef is an adapter's folder, or that of a run that trained one, and the factor of
// what it adds; see lora.Weighted.
type AdapterRef struct {
	Dir    string
	Weight float64
}

// openAdapters opens adapters; those that are open are closed with closeAdapters, also
// after an error.
func openAdapters(refs []AdapterRef) (list []lora.Weighted, err error) {
	for _, r := range refs {
		a, err := lora.Open(checkpoint.Newest(r.Dir))
		if err != nil {
			return list, fmt.Errorf("opening the adapter: %w", err)
		}
		list = append(list, lora.Weighted{Adapter: a, Weight: r.Weight})
	}
	return list, nil
}

func closeAdapters(list []lora.Weighted) (err error) {
	for _, w := range list {
		err = errors.Join(err, w.Adapter.Close())
	}
	return err
}

// Merge writes a copy of a model folder with adapters merged into its weights. Of a run's
// folder it takes the newest checkpoint.
func Merge(ctx context.Context, base string, refs []AdapterRef, dir string, o Options) (r Result, err error) {
	o.Adapters, err = openAdapters(refs)
	defer func() { err = errors.Join(err, closeAdapters(o.Adapters)) }()
	if err != nil {
		return r, err
	}
	from, err := hf.OpenOn(vfs.Ahead(vfs.OS), checkpoint.Newest(base))
	if err != nil {
		return r, fmt.Errorf("opening the model: %w", err)
	}
	defer from.Close() // opened for reading
	return Folder(ctx, from, dir, o)
}

// Combine writes one adapter that adds what several add together.
func Combine(refs []AdapterRef, dir string) (r Result, err error) {
	start := time.Now()
	list, err := openAdapters(refs)
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
	r = Result{Tensors: len(folder.Tensors), Changed: len(folder.Tensors), Adapter: true}
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
// first. Of a run's folder it takes the newest checkpoint; a model folder has no checksums.
func Export(ctx context.Context, from, dir string, o Options) (r Result, err error) {
	from = checkpoint.Newest(from)
	if saved, err := vfs.Exists(vfs.OS, filepath.Join(from, checkpoint.ManifestName)); err == nil && saved {
		c, err := checkpoint.Open(from)
		if err != nil {
			return r, fmt.Errorf("opening the checkpoint: %w", err)
		}
		c.Close() // opened for reading
	}
	if hf.IsAdapter(from) {
		return exportAdapter(ctx, from, dir, o)
	}
	model, err := hf.Open(from)
	if err != nil {
		return r, fmt.Errorf("opening the checkpoint: %w", err)
	}
	defer model.Close() // opened for reading
	o.Others = o.Linear
	return Folder(ctx, model, dir, o)
}

func exportAdapter(ctx context.Context, from, dir string, o Options) (r Result, err error) {
	if o.Offloaded {
		return r, fmt.Errorf("exporting %s for accelerate: %w", from, ErrAdapter)
	}
	f, err := hf.OpenAdapter(from)
	if err != nil {
		return r, err
	}
	defer f.Close() // opened for reading
	return Adapter(ctx, f, dir, o.Linear)
}
