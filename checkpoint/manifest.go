package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"spillway/internal/vfs"
)

// manifest describes a checkpoint. It is the last file written.
type manifest struct {
	Format    int                 `json:"format"`
	Iteration int64               `json:"iteration"`
	Saved     int64               `json:"saved_unix_nano"`
	Files     map[string]checksum `json:"files"`
	// Best is the iteration of a better checkpoint, where the run stopped because its
	// evaluations no longer improved; 0 for none.
	Best int64 `json:"best_iteration,omitempty"`
}

// formatVersion is raised when older programs can no longer read what is written. 2:
// the trainer's state counts sequences.
const formatVersion = 2

// maxJSON limits the size of manifest.json and trainer.json, in bytes.
const maxJSON = 16 << 20

// checksum is the size and CRC-32C of a file. It detects damage, not tampering, as fast
// as memory can be read.
type checksum struct {
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealedManifest is the contents of manifest.json: the manifest and the checksum of its
// compact text.
type sealedManifest struct {
	Manifest json.RawMessage `json:"manifest"`
	CRC      uint32          `json:"crc32c"`
}

// readManifest reads the manifest in a folder, which may be named after its iteration.
// Where it is of another one, what it says of the best checkpoint still counts.
func readManifest(disk vfs.FS, dir string) (manifest, error) {
	path := filepath.Join(dir, ManifestName)
	raw, err := vfs.ReadFile(disk, path, maxJSON)
	if err != nil {
		return manifest{}, err
	}
	m, err := parseManifest(raw)
	if err != nil {
		return manifest{}, fmt.Errorf("%s: %w", path, err)
	}
	if iteration, _, ok := parseName(filepath.Base(dir)); ok && iteration != m.Iteration {
		return manifest{Best: m.Best}, fmt.Errorf("%s: its manifest is of iteration %d", dir, m.Iteration)
	}
	return m, nil
}

// parseManifest refuses manifests that no save could have written.
func parseManifest(raw []byte) (manifest, error) {
	var s sealedManifest
	var m manifest
	var text bytes.Buffer
	if err := json.Unmarshal(raw, &s); err != nil {
		return m, err
	}
	if err := json.Compact(&text, s.Manifest); err != nil {
		return m, err
	}
	if got := crc32.Checksum(text.Bytes(), castagnoli); got != s.CRC {
		return m, fmt.Errorf("the checksum of the manifest is %08x, it should be %08x: it is damaged", got, s.CRC)
	}
	if err := json.Unmarshal(text.Bytes(), &m); err != nil {
		return m, err
	}
	switch {
	case m.Format != formatVersion:
		return m, fmt.Errorf("the checkpoint has format %d, this program reads %d: go on with the program that wrote it, or train from its model folder", m.Format, formatVersion)
	case m.Saved < 1 || m.Iteration < 0:
		return m, fmt.Errorf("the manifest has save time %d and iteration %d", m.Saved, m.Iteration)
	}
	for name := range m.Files {
		if local := filepath.FromSlash(name); !filepath.IsLocal(local) || filepath.Clean(local) != local || name == "." || strings.Contains(name, `\\`) {
			return m, fmt.Errorf("the manifest names a file outside of its folder: %q", name)
		}
	}
	for _, name := range []string{StateName, TrainerName} {
		if _, ok := m.Files[name]; !ok {
			return m, fmt.Errorf("the manifest does not list %s", name)
		}
	}
	return m, nil
}

// verify reads every file of a checkpoint and compares sizes and checksums.
func (m manifest) verify(disk vfs.FS, dir string) error {
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		got, err := checksumOf(disk, path)
		if err != nil {
			return err
		}
		if want := m.Files[name]; got != want {
			return fmt.Errorf("%s has %d bytes with checksum %08x, %d with %08x were saved: it is damaged", path, got.Bytes, got.CRC, want.Bytes, want.CRC)
		}
	}
	return nil
}

func checksumOf(disk vfs.FS, path string) (s checksum, err error) {
	f, err := disk.Open(path)
	if err != nil {
		return checksum{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return checksum{}, err
	}
	w := crc32.New(castagnoli)
	n, err := io.CopyBuffer(w, io.NewSectionReader(f, 0, size), make([]byte, min(1<<20, size+1)))
	return checksum{n, w.Sum32()}, err
}

// checksumFS is a file system that computes the checksum of each file written to it, by
// name within a folder, with slashes.
type checksumFS struct {
	vfs.FS
	dir   string
	files map[string]*checksumFile
}

// Create implements vfs.FS.
func (d checksumFS) Create(path string) (vfs.File, error) {
	name, err := filepath.Rel(d.dir, path)
	if err != nil {
		return nil, err
	}
	name = filepath.ToSlash(name)
	if d.files[name] != nil {
		return nil, fmt.Errorf("%s would be written twice", path)
	}
	f, err := d.FS.Create(path)
	if err != nil {
		return nil, err
	}
	d.files[name] = &checksumFile{File: f}
	return d.files[name], nil
}

type checksumFile struct {
	vfs.File
	sum checksum
}

// WriteAt is refused, because the checksum already includes what was written before.
func (f *checksumFile) WriteAt(p []byte, off int64) (int, error) {
	return 0, fmt.Errorf("writing %d bytes at %d again, in a file whose checksum is computed as it is written", len(p), off)
}

func (f *checksumFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.sum.Bytes += int64(n)
	f.sum.CRC = crc32.Update(f.sum.CRC, castagnoli, p[:n])
	return n, err
}
