package vfs

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// ErrCrashed is the error of every call after the simulated crash.
var ErrCrashed = errors.New("the process was killed here")

// Faults wraps a disk and makes chosen calls fail. Every call on the disk and on its
// files except Close counts, from 1. Zero fields do nothing.
type Faults struct {
	Disk FS

	FailAt int   // the number of the call that fails ...
	Err    error // ... with this error

	CrashAt int // from this call on nothing reaches the disk; the call, if a write, is half done

	ShortAt int // the number of the call that, if a write, writes half without an error

	Capacity int64 // bytes that can be written until the disk is full; 0 is no limit

	// Corrupt, where set, may change what was read: p holds the bytes of name at off.
	Corrupt func(name string, off int64, p []byte)

	mu      sync.Mutex
	calls   int
	written int64
}

// Calls is the number of calls so far.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// enter counts a call and says whether it fails.
func (f *Faults) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	switch {
	case f.CrashAt > 0 && f.calls >= f.CrashAt:
		return ErrCrashed
	case f.FailAt > 0 && f.calls == f.FailAt:
		return f.Err
	}
	return nil
}

// Open implements FS.
func (f *Faults) Open(name string) (File, error) { return f.file(name, f.Disk.Open) }

// Create implements FS.
func (f *Faults) Create(name string) (File, error) { return f.file(name, f.Disk.Create) }

func (f *Faults) file(name string, open func(string) (File, error)) (File, error) {
	inner, err := ask(f, open, name)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{faultyFile{inner, f, name, 1}, inner}, nil
}

// OpenInPlace implements FS.
func (f *Faults) OpenInPlace(name string, write bool) (InPlace, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	inner, err := f.Disk.OpenInPlace(name, write)
	if err != nil {
		return nil, err
	}
	return &faultyInPlace{faultyFile{inner, f, name, Block}, inner}, nil
}

// Mkdir implements FS.
func (f *Faults) Mkdir(name string) error { return f.try(f.Disk.Mkdir, name) }

// Rename implements FS.
func (f *Faults) Rename(from, to string) error {
	return f.try(func(from string) error { return f.Disk.Rename(from, to) }, from)
}

// Remove implements FS.
func (f *Faults) Remove(name string) error { return f.try(f.Disk.Remove, name) }

// SyncDir implements FS.
func (f *Faults) SyncDir(dir string) error { return f.try(f.Disk.SyncDir, dir) }

// List implements FS.
func (f *Faults) List(dir string) ([]string, error) { return ask(f, f.Disk.List, dir) }

// Stat implements FS.
func (f *Faults) Stat(name string) (Info, error) { return ask(f, f.Disk.Stat, name) }

// Lock implements FS.
func (f *Faults) Lock(dir string) (io.Closer, error) { return ask(f, f.Disk.Lock, dir) }

// Free implements FS.
func (f *Faults) Free(dir string) (int64, error) { return ask(f, f.Disk.Free, dir) }

func (f *Faults) try(call func(string) error, name string) error {
	if err := f.enter(); err != nil {
		return err
	}
	return call(name)
}

func ask[T any](f *Faults, call func(string) (T, error), name string) (t T, err error) {
	if err := f.enter(); err != nil {
		return t, err
	}
	return call(name)
}

// faultyFile is an open file whose calls count too. Half a write is whole blocks.
type faultyFile struct {
	opened
	faults *Faults
	name   string
	block  int // bytes
}

// ReadAt counts the call, and lets Corrupt change what was read.
func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.faults.enter(); err != nil {
		return 0, err
	}
	n, err := f.opened.ReadAt(p, off)
	if f.faults.Corrupt != nil {
		f.faults.Corrupt(f.name, off, p[:n])
	}
	return n, err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.opened.WriteAt(p, off) })
}

func (f *faultyFile) write(p []byte, do func([]byte) (int, error)) (int, error) {
	allowed, fault := f.faults.admit(len(p))
	if allowed < len(p) {
		allowed -= allowed % f.block
	}
	if allowed == 0 && fault != nil {
		return 0, fault
	}
	n, err := do(p[:allowed])
	return n, errors.Join(err, fault)
}

// admit says how many of n bytes reach the disk, and the error for the rest.
func (f *Faults) admit(n int) (int, error) {
	err := f.enter()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, ErrCrashed) && f.calls == f.CrashAt:
		return n / 2, err
	case err != nil:
		return 0, err
	case f.calls == f.ShortAt:
		return n / 2, nil
	case f.Capacity > 0 && f.written+int64(n) > f.Capacity:
		n = int(f.Capacity - f.written)
		f.written = f.Capacity
		return n, syscall.ENOSPC
	}
	f.written += int64(n)
	return n, nil
}

func (f *faultyFile) Sync() error {
	if err := f.faults.enter(); err != nil {
		return err
	}
	return f.opened.Sync()
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.faults.enter(); err != nil {
		return 0, err
	}
	return f.opened.Size()
}

// faultyWriter is a faulty File.
type faultyWriter struct {
	faultyFile
	inner io.Writer
}

func (f *faultyWriter) Write(p []byte) (int, error) { return f.write(p, f.inner.Write) }

// faultyInPlace is a faulty file open for reading and writing anywhere.
type faultyInPlace struct {
	faultyFile
	inner InPlace
}

// Modified implements InPlace. It counts as no call: it only looks.
func (f *faultyInPlace) Modified() (int64, error) { return f.inner.Modified() }

func (f *faultyInPlace) Reserve(bytes int64) error {
	if err := f.faults.enter(); err != nil {
		return err
	}
	if limit := f.faults.Capacity; limit > 0 && bytes > limit {
		return syscall.ENOSPC
	}
	return f.inner.Reserve(bytes)
}
