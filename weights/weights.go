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
	return LoadSome(e, from, func(plan.SlabParam) bool { return true })
}

// LoadSome is Load for some of the params; the others have their values already.
func LoadSome(e *executor.Executor, from Values, wanted func(plan.SlabParam) bool) error {
	for _, t := range tensorsOf(e) {
		values := from
		if t.State != "" && t.State != executor.Master {
			values = zeros{}
		}
		if !wanted(t.Param) {
			continue
		}
		if err := write(e, t, values); err != nil {
			return fmt.Errorf("loading weights: %w", err)
		}
	}
	return nil
}

// Replace writes every param and its master, and leaves all other optimizer state as it
// is.
func Replace(e *executor.Executor, from Values) error {
	for _, t := range tensorsOf(e) {
		if t.State != "" && t.State != executor.Master {
			continue
		}
		if err := write(e, t, from); err != nil {
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

func write(e *executor.Executor, t executor.Tensor, from Values) error {
	if t.Type.DType.Block() {
		return writeBlocks(e, t, from)
	}
	if !t.Type.DType.IsPlain() {
		return fmt.Errorf("param %s is stored as %v, which is not made from plain numbers; use f32, bf16, f16, %s", t.Param.Name, t.Type.DType, quant.Aliases(", "))
	}
	width := t.Type.DType.Bytes(1)
	return e.Write(t, func(offset int64, chunk []byte) error {
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
