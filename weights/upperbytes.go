package weights

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"spillway/dtype"
	"spillway/quant"
)

// sampledPiece is how many numbers that lie together are looked at.
const sampledPiece = 4096

// UpperBytes counts the upper bytes that the numbers of a param have in bf16, of about as many as wanted: pieces that lie evenly apart.
// looked is how many were counted.
func UpperBytes(from Values, param string, elements, wanted int64) (counts *quant.UpperBytes, looked int64, err error) {
	pieces := (elements + sampledPiece - 1) / sampledPiece
	each := max(1, elements/max(wanted, 1))
	pieces = (pieces + each - 1) / each
	r, _ := packed(from, param, dtype.BF16)
	stored, _ := r.(io.ReaderAt)
	counts = new(quant.UpperBytes)
	var next, seen atomic.Int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for range min(pieces, int64(runtime.GOMAXPROCS(0))) {
		group.Go(func() {
			var own quant.UpperBytes
			halves, numbers := make([]byte, 2*sampledPiece), make([]float32, sampledPiece)
			for i := next.Add(1) - 1; i < pieces; i = next.Add(1) - 1 {
				first := i * each * sampledPiece
				n := min(elements-first, sampledPiece)
				var failed error
				if stored != nil {
					_, failed = stored.ReadAt(halves[:2*n], 2*first)
					if failed == io.EOF {
						failed = nil
					}
					own.Add(halves[:2*n])
				} else {
					failed = from.Read(param, first, numbers[:n])
					own.AddNumbers(numbers[:n])
				}
				if failed != nil {
					mu.Lock()
					err = failed
					mu.Unlock()
					return
				}
				seen.Add(n)
			}
			mu.Lock()
			counts.Join(&own)
			mu.Unlock()
		})
	}
	group.Wait()
	return counts, seen.Load(), err
}
