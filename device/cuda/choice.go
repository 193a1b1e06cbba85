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

// Which of cuBLASLt's ways computes a product is decided once per machine and then kept:
// two ways may differ in the last bit, and the bits of a run may not depend on what was
// timed that day. So ways are timed only where there is a folder to remember the choice
// in; elsewhere the library's own first is taken.

// algorithmChoices made so far.
type algorithmChoices struct {
	mu     sync.Mutex
	made   map[string]int // by the name of their file
	loaded map[loadedAlgorithm]bool
}

// loadedAlgorithm is a way whose code is on the GPU.
type loadedAlgorithm struct {
	gemm      driver.Gemm
	algorithm int
}

// candidates is a product and the ways to compute it, the library's favourite first.
type candidates struct {
	gemm       driver.Gemm
	prepared   *driver.Prepared
	algorithms []driver.Algorithm
	work       int64 // multiplications
}

// minTimedWork for which ways are timed: less is over before it matters.
const minTimedWork = 1 << 30

// timedChoice is what the file of a choice holds.
type timedChoice struct {
	GPU       string      `json:"card"`
	Library   int         `json:"cublaslt"`
	Gemm      driver.Gemm `json:"product"`
	Added     bool        `json:"added"`   // to what the result holds
	Seconds   []float64   `json:"seconds"` // of each way; none if there was no room to try
	Algorithm int         `json:"way"`     // the one taken
}

// chooseAlgorithm is the way to take, its code loaded. The context must be current.
func (d *Device) chooseAlgorithm(c candidates) (way driver.Algorithm, err error) {
	d.choices.mu.Lock()
	defer d.choices.mu.Unlock()
	n, err := d.algorithmNumber(c)
	if err != nil {
		return way, err
	}
	if which := (loadedAlgorithm{c.gemm, n}); !d.choices.loaded[which] {
		if d.choices.loaded == nil {
			d.choices.loaded = map[loadedAlgorithm]bool{}
		}
		d.choices.loaded[which] = true
		err = d.loadAlgorithm(c, c.algorithms[n])
	}
	return c.algorithms[n], err
}

// algorithmNumber gives the number of the way to take. The lock is held.
func (d *Device) algorithmNumber(c candidates) (int, error) {
	if d.options.Cache == "" || len(c.algorithms) == 1 || c.work < minTimedWork {
		return 0, nil
	}
	wanted := timedChoice{GPU: fmt.Sprintf("%s, %d multiprocessors", d.gpu.name, d.gpu.multiprocessors), Library: d.lib.BLAS.Version, Gemm: c.gemm, Added: c.prepared.Beta != 0}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d ways in %d bytes %+v", maxAlgorithms, gemmWorkspace, wanted))
	name := hex.EncodeToString(sum[:16]) + ".product"
	if way, known := d.choices.made[name]; known {
		return way, nil
	}
	way, err := d.cachedChoice(filepath.Join(d.options.Cache, name), c, wanted)
	if err != nil {
		return 0, err
	}
	if d.choices.made == nil {
		d.choices.made = map[string]int{}
	}
	d.choices.made[name] = way
	return way, nil
}

// cachedChoice reads a choice, or makes it and keeps it. Where two programs choose at once,
// the first to have written decides for both.
func (d *Device) cachedChoice(path string, c candidates, made timedChoice) (int, error) {
	way, err := readChoice(path, len(c.algorithms))
	if !errors.Is(err, fs.ErrNotExist) {
		return way, err
	}
	if made.Seconds, err = d.timeAlgorithms(c); err != nil {
		return 0, fmt.Errorf("timing the ways to compute it: %w", err)
	}
	made.Algorithm = fastest(made.Seconds)
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return 0, err
	}
	if err := writeOnce(path, append(text, '\n')); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("keeping the way to compute it: %w", err)
	}
	return readChoice(path, len(c.algorithms))
}

func readChoice(path string, ways int) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the way chosen before: %w", err)
	}
	var made timedChoice
	if err := json.Unmarshal(text, &made); err != nil {
		return 0, fmt.Errorf("%s does not hold a choice (%w); remove it to choose anew", path, err)
	}
	if made.Algorithm < 0 || made.Algorithm >= ways {
		return 0, fmt.Errorf("%s names way %d of %d; remove it to choose anew", path, made.Algorithm, ways)
	}
	return made.Algorithm, nil
}

// fastest is the fastest way, but the library's favourite if it is within a fiftieth.
func fastest(seconds []float64) (best int) {
	const worth = 0.98
	for i, s := range seconds {
		if s < seconds[best] && s < worth*seconds[0] {
			best = i
		}
	}
	return best
}

// writeOnce writes a file that appears whole, unless there is one already.
func writeOnce(path string, b []byte) error {
	if err := vfs.MkdirAll(vfs.OS, filepath.Dir(path)); err != nil {
		return err
	}
	return vfs.WriteOnce(path, b)
}
