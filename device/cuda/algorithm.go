package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"spillway/device/cuda/driver"
	"spillway/internal/vfs"
)

// cuBLASLt offers several algorithms for a matmul. Which one is taken is decided once per
// machine and written to the cache folder: two algorithms may differ in the last bit, and
// the bits of a run must not depend on what was timed that day. Without a cache folder the
// library's first suggestion is taken.

// algorithmChoices are the decisions of this process.
type algorithmChoices struct {
	mu     sync.Mutex
	made   map[string]int // number of the algorithm, by the name of the choice's file
	loaded map[loadedAlgorithm]bool
}

// loadedAlgorithm names an algorithm whose code is on the GPU.
type loadedAlgorithm struct {
	gemm      driver.Gemm
	batch     driver.Batch
	algorithm int
}

// candidates are the algorithms for a matmul, the library's suggestion first.
type candidates struct {
	gemm       driver.Gemm
	batch      driver.Batch
	prepared   *driver.Prepared
	algorithms []driver.Algorithm
	work       int64 // multiply-adds
	read       int64 // bytes of the factors
}

// minTimedWork is how many multiply-adds a matmul must have for its algorithms to be timed:
// smaller ones take too little time to matter.
const minTimedWork = 1 << 30

// minTimedBytes is from how many bytes of factors on they are timed all the same: reading them takes the
// time then, as with few rows, and more than caches hold is read.
const minTimedBytes = 40 << 20

// timedChoice is the content of a choice's file.
type timedChoice struct {
	GPU       string      `json:"gpu"`
	Library   int         `json:"cublaslt"`
	Gemm      driver.Gemm `json:"gemm"`
	Added     bool        `json:"added"`     // the result is added to what the output holds
	Seconds   []float64   `json:"seconds"`   // per algorithm; none where memory was too small to try
	Algorithm int         `json:"algorithm"` // the one taken
}

// chooseAlgorithm gives the algorithm to use, its code loaded. The context must be current.
func (d *Device) chooseAlgorithm(c candidates) (way driver.Algorithm, err error) {
	d.choices.mu.Lock()
	defer d.choices.mu.Unlock()
	n, err := d.algorithmNumber(c)
	if err != nil {
		return way, err
	}
	if which := (loadedAlgorithm{c.gemm, c.batch, n}); !d.choices.loaded[which] {
		d.choices.loaded[which] = true
		err = d.loadAlgorithm(c, c.algorithms[n])
	}
	return c.algorithms[n], err
}

// algorithmNumber gives the index of the algorithm to use; of batches the library's suggestion. The lock is held.
func (d *Device) algorithmNumber(c candidates) (int, error) {
	if d.options.Cache == "" || c.batch.Count > 0 || len(c.algorithms) == 1 || c.work < minTimedWork && c.read < minTimedBytes {
		return 0, nil
	}
	wanted := timedChoice{GPU: fmt.Sprintf("%s, %d multiprocessors", d.gpu.name, d.gpu.multiprocessors), Library: d.lib.BLAS.Version, Gemm: c.gemm, Added: c.prepared.Beta != 0}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d algorithms in %d bytes %+v", maxAlgorithms, gemmWorkspace, wanted))
	name := hex.EncodeToString(sum[:16]) + ".gemm"
	if way, known := d.choices.made[name]; known {
		return way, nil
	}
	way, err := d.cachedChoice(filepath.Join(d.options.Cache, name), c, wanted)
	if err != nil {
		return 0, err
	}
	d.choices.made[name] = way
	return way, nil
}

// cachedChoice reads a choice from its file, or makes it and writes the file. Where two
// programs choose at once, the first to write decides for both.
func (d *Device) cachedChoice(path string, c candidates, made timedChoice) (int, error) {
	way, err := readChoice(path, len(c.algorithms))
	if !errors.Is(err, fs.ErrNotExist) {
		return way, err
	}
	made.Seconds, err = d.timeAlgorithms(c)
	if errors.Is(err, errScratchLimit) { // a plan with memory for it decides
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("timing its algorithms: %w", err)
	}
	made.Algorithm = fastest(made.Seconds)
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return 0, err
	}
	if err = vfs.MkdirAll(vfs.OS, filepath.Dir(path)); err == nil {
		err = vfs.WriteOnce(path, append(text, '\n'))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("writing the chosen algorithm: %w", err)
	}
	return readChoice(path, len(c.algorithms))
}

func readChoice(path string, ways int) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the algorithm chosen before: %w", err)
	}
	var made timedChoice
	if err := json.Unmarshal(text, &made); err != nil {
		return 0, fmt.Errorf("%s does not hold a choice (%w); remove it to choose anew", path, err)
	}
	if made.Algorithm < 0 || made.Algorithm >= ways {
		return 0, fmt.Errorf("%s names algorithm %d of %d; remove it to choose anew", path, made.Algorithm, ways)
	}
	return made.Algorithm, nil
}

// fastest is the index of the fastest algorithm; the library's suggestion where it is
// within 2% of it.
func fastest(seconds []float64) (best int) {
	const worth = 0.98
	for i, s := range seconds {
		if s < seconds[best] && s < worth*seconds[0] {
			best = i
		}
	}
	return best
}
