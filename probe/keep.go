package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

// kept is a file of rates.
type cacheFile struct {
	Key   string `json:"key"`
	Rates Rates  `json:"rates"`
}

// path of the rates of a device, whose key names everything they depend on.
func cachePath(dir, key string) string {
	h := fnv.New64a()
	h.Write([]byte(key))
	return filepath.Join(dir, fmt.Sprintf("device-%016x.json", h.Sum64()))
}

// Kept are the rates that Keep wrote; none is no error.
func Load(dir, key string) (r Rates, ok bool, err error) {
	if dir == "" {
		return r, false, nil
	}
	text, err := os.ReadFile(cachePath(dir, key))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	var k cacheFile
	if err := json.Unmarshal(text, &k); err != nil {
		return r, false, fmt.Errorf("%s: %w; measure again", cachePath(dir, key), err)
	}
	r = k.Rates
	if err := r.Tables.Check(); err != nil {
		return r, false, fmt.Errorf("%s: %w", cachePath(dir, key), err)
	}
	return r, k.Key == key && r.In > 0 && r.Out > 0 && r.Bandwidth > 0 && r.Compute.F32 > 0, nil
}

// Keep writes rates so that a reader sees the old file or the new one. Nothing is kept
// where dir is "".
func Store(dir, key string, r Rates) error {
	if dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(cacheFile{key, r}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "device-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // gone already if the rename succeeded
	_, err = temp.Write(append(text, '\n'))
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), cachePath(dir, key))
}
