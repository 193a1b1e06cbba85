package hf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"spillway/hf/offload"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/tensorfile"
)

// Model is what Write makes a model folder of. Tensors are read one after another while
// writing, so they need not be in memory.
type Model struct {
	Config     *Config
	Generation []byte            // the text of generation_config.json, nil for none
	Files      []string          // paths of files to copy in, such as Folder.TokenizerPaths
	Texts      map[string][]byte // other files, by their names, with slashes
	Tensors    []tensorfile.Output
	ShardBytes int64 // size of the largest file of weights; 0 means safetensors.DefaultShard
	Offloaded  bool  // write one file per weight, as accelerate's offload folders have
}

// Write makes a folder, complete or not at all. A folder of that name must not exist.
func (m Model) Write(dir string) error { return m.WriteOn(vfs.OS, dir) }

// WriteOn is Write on a given disk.
func (m Model) WriteOn(disk vfs.FS, dir string) error {
	return publish(disk, dir, m.Bytes, func(partial string) error { return m.Fill(disk, partial) })
}

// publish writes a folder under a name that must not exist yet, after checking that the
// disk has space for it.
func publish(disk vfs.FS, dir string, bytes func() (int64, error), fill func(partial string) error) error {
	dir = filepath.Clean(dir)
	taken, err := vfs.Exists(disk, dir)
	if err != nil {
		return err
	}
	if taken {
		if disk == vfs.OS {
			_ = vfs.Tidy(dir) // somebody may be writing there
		}
		return fmt.Errorf("%s exists already: choose another name or remove it", dir)
	}
	if err := vfs.MkdirAll(disk, filepath.Dir(dir)); err != nil {
		return err
	}
	needed, err := bytes()
	if err != nil {
		return err
	}
	return vfs.WithSpace(disk, filepath.Dir(dir), needed, func() error {
		return vfs.Publish(disk, dir, func(partial string) error {
			if taken, err := vfs.Exists(disk, dir); err != nil || taken { // by somebody who was faster
				return errors.Join(err, fmt.Errorf("%s was made meanwhile: choose another name or remove it", dir))
			}
			return fill(partial)
		})
	})
}

// Bytes returns the size of all tensors, which is nearly all of a folder.
func (m Model) Bytes() (int64, error) { return totalBytes(m.written()) }

// written are the tensors of the files. An offloaded model that is tied has its head as a
// tensor of its own, since accelerate looks it up under its own name.
func (m Model) written() []tensorfile.Output {
	if !m.Offloaded || m.Config == nil || !m.Config.Tied {
		return m.Tensors
	}
	find := func(name string) int {
		return slices.IndexFunc(m.Tensors, func(t tensorfile.Output) bool { return t.Name == name })
	}
	for _, name := range embeddings {
		if i := find(name); i >= 0 && find(headName) < 0 {
			head := m.Tensors[i]
			head.Name = headName
			return append(slices.Clone(m.Tensors), head)
		}
	}
	return m.Tensors
}

func totalBytes(tensors []tensorfile.Output) (total int64, err error) {
	for _, t := range tensors {
		n, err := t.Bytes()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Fill writes the files into an existing folder and makes each durable. It is not
// atomic: callers put it inside vfs.Publish.
func (m Model) Fill(disk vfs.FS, dir string) error {
	if m.Config == nil {
		return fmt.Errorf("a model folder needs a %s, and none was given", ConfigName)
	}
	config, err := m.Config.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", ConfigName, err)
	}
	if err := writeBytes(disk, filepath.Join(dir, ConfigName), config); err != nil {
		return err
	}
	if m.Generation != nil {
		if err := writeBytes(disk, filepath.Join(dir, GenerationName), m.Generation); err != nil {
			return err
		}
	}
	if err := m.fillSmall(disk, dir); err != nil {
		return err
	}
	if m.Offloaded {
		return offload.Fill(disk, dir, m.written())
	}
	return safetensors.WriteSet(disk, dir, m.Tensors, m.ShardBytes)
}

// fillSmall writes the files that are neither weights nor configs.
func (m Model) fillSmall(disk vfs.FS, dir string) error {
	for _, from := range m.Files {
		name := filepath.Base(from)
		if filepath.Base(filepath.Dir(from)) == templatesDir {
			name = templatesDir + "/" + name
		}
		if err := within(disk, dir, name, func(to string) error { return copyFile(disk, from, to) }); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Texts)) {
		if err := within(disk, dir, name, func(to string) error { return writeBytes(disk, to, m.Texts[name]) }); err != nil {
			return err
		}
	}
	return nil
}

// within writes a file of a folder, with slashes in its name where it is deeper inside.
func within(disk vfs.FS, dir, name string, write func(to string) error) error {
	to := filepath.Join(dir, filepath.FromSlash(name))
	parent := filepath.Dir(to)
	if parent == filepath.Clean(dir) {
		return write(to)
	}
	if err := vfs.MkdirAll(disk, parent); err != nil {
		return err
	}
	if err := write(to); err != nil {
		return err
	}
	return disk.SyncDir(parent)
}

func writeBytes(disk vfs.FS, path string, p []byte) error {
	return vfs.WriteFile(disk, path, func(w io.Writer) error {
		_, err := w.Write(p)
		return err
	})
}

func copyFile(disk vfs.FS, from, to string) error {
	in, err := disk.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return err
	}
	return vfs.WriteFile(disk, to, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(in, 0, size))
		return err
	})
}
