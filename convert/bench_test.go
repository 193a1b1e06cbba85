//go:build unix

package convert_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/convert"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/offheap"
	"spillway/internal/vfs"
	"spillway/quant"
)

// benchConfig is of a model whose weights take 507 MiB in bf16.
const benchConfig = `{"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":4,"num_attention_heads":16,
	"num_key_value_heads":4,"vocab_size":2048,"max_position_embeddings":64,"torch_dtype":"bfloat16"}`

// BenchmarkQuantize compares quantizing a folder with what the disk itself takes to read as
// many bytes and write as many, at the same time, past the page cache: ofdisk is the disk's
// time through the quantizer's, the best of each. The two take turns. busy is the share of
// the disk's time that all cores together need for it: below 1 they do not bind.
func BenchmarkQuantize(b *testing.B) {
	dir := patterned(b, benchConfig)
	for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.RowI8, quant.RowF8} {
		b.Run(kind.String(), func(b *testing.B) {
			var ours, disks, busy time.Duration
			var bytes int64
			for b.Loop() {
				before := cpuTime(b)
				r, took := quantized(b, dir, kind)
				busy = least(busy, cpuTime(b)-before)
				bytes = r.Before + r.Bytes
				ours, disks = least(ours, took), least(disks, diskAlone(b, dir, r.Bytes))
			}
			b.ReportMetric(float64(disks)/float64(ours), "ofdisk")
			b.ReportMetric(float64(busy)/float64(runtime.GOMAXPROCS(0))/float64(disks), "busy")
			b.ReportMetric(float64(bytes)/1e6/ours.Seconds(), "MB/s")
			b.ReportMetric(float64(bytes)/1e6/disks.Seconds(), "disk-MB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTime is what this process has had of CPU time, in user mode and in the kernel.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func least(best, now time.Duration) time.Duration {
	if best == 0 || now < best {
		return now
	}
	return best
}

func quantized(b *testing.B, dir string, kind dtype.Type) (convert.Result, time.Duration) {
	out := filepath.Join(b.TempDir(), "out")
	start := time.Now()
	from, err := hf.OpenOn(vfs.Ahead(vfs.OS), dir)
	if err != nil {
		b.Fatal(err)
	}
	r, err := convert.Folder(context.Background(), from, out, convert.Options{Linear: kind})
	if err := errors.Join(err, from.Close()); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	if err := os.RemoveAll(out); err != nil {
		b.Fatal(err)
	}
	return r, took
}

// diskAlone reads the weights of a folder, and writes so many bytes, in large pieces on
// several goroutines each.
func diskAlone(b *testing.B, dir string, written int64) time.Duration {
	out := filepath.Join(b.TempDir(), "out")
	start := time.Now()
	var wait sync.WaitGroup
	var readErr, writeErr error
	wait.Go(func() { readErr = transfer(filepath.Join(dir, "model.safetensors"), false, -1) })
	wait.Go(func() { writeErr = transfer(out, true, written) })
	wait.Wait()
	took := time.Since(start)
	if err := errors.Join(readErr, writeErr, os.Remove(out)); err != nil {
		b.Fatal(err)
	}
	return took
}

// transfer reads or writes a file whole, and makes it durable.
func transfer(path string, write bool, bytes int64) error {
	f, err := vfs.OS.OpenInPlace(path, write)
	if err != nil {
		return err
	}
	defer f.Close()
	if bytes < 0 {
		if bytes, err = f.Size(); err != nil {
			return err
		}
	}
	const piece, workers = 4 << 20, 4
	room, err := offheap.Alloc(workers*piece, false)
	if err != nil {
		return err
	}
	defer room.Free()
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			do, p := f.ReadAt, room.Bytes()[w*piece:][:piece]
			if write {
				do = f.WriteAt
			}
			for off := int64(w * piece); off < bytes && errs[w] == nil; off += workers * piece {
				if _, errs[w] = do(p, off); errors.Is(errs[w], io.EOF) {
					errs[w] = nil
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil || !write {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}
