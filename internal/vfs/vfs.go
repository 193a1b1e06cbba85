// Package vfs is the file system as the packages that write files see it, so that tests can
// replace it.
//
// FS has the calls they need. OS is the real disk. Memory is a disk that can lose power: it
// remembers what was synced and forgets a random part of the rest. Faults wraps either and
// makes chosen calls fail, so that a test can stop a save at every single call.
//
// What must survive a crash is written by Replace (a file) or Publish (a folder): it appears
// whole or not at all.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// FS is the disk. Names are paths as the operating system writes them. Nothing is
// durable until it is synced: a file's bytes by File.Sync, and its name, like
// every create, rename and remove, by SyncDir of the folder that holds it.
type FS interface {
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Create makes a file for writing, emptying one that exists.
	Create(name string) (File, error)
	// OpenInPlace opens a file for reading anywhere in whole blocks; with write also for
	// writing, and creates it where it is missing.
	OpenInPlace(name string, write bool) (InPlace, error)
	// Mkdir makes one folder; fs.ErrExist where the name is taken.
	Mkdir(name string) error
	// Rename gives a file or folder another name in the same folder, atomically.
	// It replaces a file of that name, and refuses where a folder has it.
	Rename(from, to string) error
	// Remove deletes a file or an empty folder.
	Remove(name string) error
	// List gives the names in a folder, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or folder; a missing one gives fs.ErrNotExist.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
	// Lock keeps others, also in other processes, from locking a folder until the lock is
	// closed or the process ends; ErrLocked where somebody else has it.
	Lock(dir string) (io.Closer, error)
	// Free is the space left for new files in a folder, in bytes.
	Free(dir string) (int64, error)
}

// ErrLocked says that somebody else holds the lock of a folder.
var ErrLocked = errors.New("in use by another process")

// File is an open file. One from Open is for reading, one from Create for writing in order.
// WriteAt writes over bytes that were written before.
type File interface {
	io.Writer
	opened
}

// opened is what all open files do.
type opened interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes written so far durable.
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
}

// Info describes a file or a folder, or what a link leads to.
type Info struct {
	Size int64 // bytes; 0 for a folder
	Dir  bool
	Link bool // the name itself is a link
}

// Exists says whether there is a file or folder of this name.
func Exists(d FS, name string) (bool, error) {
	_, err := d.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadFile reads a whole small file, and refuses one of more than limit bytes.
func ReadFile(d FS, name string, limit int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are expected of such a file", name, size, limit)
	}
	p := make([]byte, size)
	if _, err := f.ReadAt(p, 0); err != nil && !(err == io.EOF && size == 0) {
		return nil, fmt.Errorf("reading %d bytes of %s: %w", size, name, err)
	}
	return p, nil
}

// WriteFile creates a file, lets write fill it, and returns once its bytes are
// durable. The name is durable only after SyncDir. The writer is an io.WriterAt too, for
// writing over bytes that were written before. For a file that appears whole see Replace.
func WriteFile(d FS, name string, write func(io.Writer) error) error {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	if err = write(&fullWriter{file: f}); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// WriteBytes is WriteFile for bytes at hand.
func WriteBytes(d FS, name string, b []byte) error {
	return WriteFile(d, name, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// fullWriter turns a short write into an error, since not every user of io.Writer checks. It
// sends parts of a large file to the disk while the next are made, so that Sync has little
// left to do and little of the file is in memory.
type fullWriter struct {
	file     File
	at, sent int64 // bytes written, and how many of them were sent to the disk
}

// sendBytes is how much goes to the disk at a time.
const sendBytes = 8 << 20

// sender is a file that can start to make bytes durable. Sync reports what went wrong.
type sender interface {
	send(from, n int64)
}

func (w *fullWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.at += int64(n)
	if s, ok := w.file.(sender); ok && w.at-w.sent >= sendBytes {
		s.send(w.sent, w.at-w.sent)
		w.sent = w.at
	}
	return full(p, n, err)
}

func (w *fullWriter) WriteAt(p []byte, off int64) (int, error) {
	n, err := w.file.WriteAt(p, off)
	return full(p, n, err)
}

func full(p []byte, n int, err error) (int, error) {
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// RemoveAll deletes a file or a folder with everything in it; a missing one is fine.
// Links are deleted, never followed.
func RemoveAll(d FS, name string) error {
	err := d.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, statErr := d.Stat(name); statErr != nil || !info.Dir || info.Link {
		return errors.Join(err, statErr)
	}
	names, err := d.List(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := RemoveAll(d, filepath.Join(name, n)); err != nil {
			return err
		}
	}
	return d.Remove(name)
}

// NoSpace says whether an error means that the disk is full.
func NoSpace(err error) bool {
	full := func(target error) bool { return errors.Is(err, target) }
	return full(syscall.ENOSPC) || slices.ContainsFunc(outOfSpace, full)
}

// ExistingParent is a folder, or where it does not exist yet the nearest folder above it that
// does. "" stays "".
func ExistingParent(fs FS, dir string) string {
	for dir != "" && dir != filepath.Dir(dir) {
		if there, err := Exists(fs, dir); there || err != nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Within says whether a path leads to something in a folder, with links followed where there
// are any.
func Within(path, dir string) bool {
	real := func(path string) string {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if end, err := filepath.EvalSymlinks(path); err == nil {
			path = end
		}
		return path
	}
	rel, err := filepath.Rel(real(dir), real(path))
	return err == nil && filepath.IsLocal(rel)
}
