// Package weights gives params their values: from the tensors of a model folder, or at
// random, from how the model says each starts. Either way a param's numbers depend on its
// name and nothing else, so that every plan starts from the same ones wherever it puts
// them.
//
// Values is where numbers come from: FromSource (files), Random, Noise, Magnitudes, and
// Join of two. Load writes them to an executor; Park takes everything out of an executor,
// so that another plan can go on with it.
package weights

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"spillway/executor"
	"spillway/plan"
	"spillway/quant"
)

// Values gives the values of params. Read may be called from several goroutines.
type Values interface {
	// Read fills dst with the elements of a param from the first-th on.
	Read(param string, first int64, dst []float32) error
}

// Load writes every param of an executor's plan, its full-precision master where the plan
// has one, and zeros to all other optimizer state.
func Load(e *executor.Executor, from Values) error {
	return LoadSome(e, from, func(plan.SlabParam) bool { return true }, nil)
}

// Report is called after every few megabytes with the bytes of params that were written since its last call; an
// error ends what writes. Nil is fine.
type Report func(bytes int64) error

// LoadSome is Load for some of the params; the others have their values already.
func LoadSome(e *executor.Executor, from Values, wanted func(plan.SlabParam) bool, report Report) error {
	return writeAll(e, from, func(t executor.Tensor) bool { return wanted(t.Param) }, report)
}

// Replace writes every param and its master, and leaves all other optimizer state as it
// is.
func Replace(e *executor.Executor, from Values, report Report) error {
	return writeAll(e, from, func(t executor.Tensor) bool { return t.State == "" || t.State == executor.Master }, report)
}

func writeAll(e *executor.Executor, from Values, wanted func(executor.Tensor) bool, report Report) error {
	if report == nil {
		report = func(int64) error { return nil }
	}
	for _, t := range tensorsOf(e) {
		if !wanted(t) {
			continue
		}
		values, say := from, report
		if t.State != "" { // which bytes of params leave out
			say = func(int64) error { return report(0) }
			if t.State != executor.Master {
				values = zeros{}
			}
		}
		if err := write(e, t, values, say); err != nil {
			return fmt.Errorf("loading weights: %w", err)
		}
	}
	return nil
}

// zeros is what optimizer state starts from.
type zeros struct{}

func (zeros) Read(_ string, _ int64, dst []float32) error {
	clear(dst)
	return nil
}

// chunkElements is how many numbers are converted at a time.
const chunkElements = 16 << 10

// chunkPool has buffers of so many numbers, reused all through loading.
var chunkPool = sync.Pool{New: func() any { return new([chunkElements]float32) }}

// reportBytes is how much is written between two reports: a small part of a second's work.
const reportBytes = 16 << 20

func write(e *executor.Executor, t executor.Tensor, from Values, report Report) error {
	if t.Type.DType.Block() {
		return writeBlocks(e, t, from, report)
	}
	if !t.Type.DType.IsPlain() {
		return fmt.Errorf("param %s is stored as %v, which is not made from plain numbers; use f32, bf16, f16, %s", t.Param.Name, t.Type.DType, quant.Aliases(", "))
	}
	width := t.Type.DType.Bytes(1)
	return writePieces(e, t, report, func(offset int64, chunk []byte) error {
		return inParallel(chunk, chunkElements*width, func(at int64, part []byte) error {
			whole := chunkPool.Get().(*[chunkElements]float32)
			defer chunkPool.Put(whole)
			piece := whole[:]
			for first := (offset + at) / width; len(part) > 0; first += int64(len(piece)) {
				piece = piece[:min(len(piece), len(part)/int(width))]
				if err := from.Read(t.Param.Name, first, piece); err != nil {
					return err
				}
				t.Type.DType.Encode(part, piece)
				part = part[int64(len(piece))*width:]
			}
			return nil
		})
	})
}

// writePieces fills a tensor in pieces of reportBytes, in order, and reports each.
func writePieces(e *executor.Executor, t executor.Tensor, report Report, fill func(offset int64, piece []byte) error) error {
	return e.Write(t, func(offset int64, chunk []byte) error {
		for len(chunk) > 0 {
			piece := chunk[:min(len(chunk), reportBytes)]
			if err := fill(offset, piece); err != nil {
				return err
			}
			if err := report(int64(len(piece))); err != nil {
				return err
			}
			offset, chunk = offset+int64(len(piece)), chunk[len(piece):]
		}
		return nil
	})
}

// inParallel cuts a chunk into a part for each core, of whole pieces, and calls do for all
// of them at once. at is where a part begins in the chunk.
func inParallel(chunk []byte, piece int64, do func(at int64, part []byte) error) error {
	n := int64(len(chunk))
	share := max(1, (n/piece+int64(runtime.GOMAXPROCS(0))-1)/int64(runtime.GOMAXPROCS(0))) * piece
	errs := make([]error, (n+share-1)/share)
	var group sync.WaitGroup
	for i := range errs {
		at := int64(i) * share
		group.Go(func() { errs[i] = do(at, chunk[at:min(at+share, n)]) })
	}
	group.Wait()
	return errors.Join(errs...)
}
