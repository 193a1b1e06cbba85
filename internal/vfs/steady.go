package vfs

import (
	"errors"
	"fmt"
	"time"
)

// modifier is an open file that knows when its bytes last changed, as InPlace has it.
type modifier interface {
	Modified() (int64, error)
}

// OpenSteady opens a file that has to stay as it is, such as the weights of a model: a read after somebody wrote to it is an
// error, since what is read would be of two files. One that another took the place of is read to the end as it was. On
// disks that do not know when a file changed it is Open.
func OpenSteady(d FS, name string) (File, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	m, knows := f.(modifier)
	if !knows {
		return f, nil
	}
	s := &steadyFile{File: f, name: name, now: m}
	if s.opened, err = m.Modified(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// steadyFile is a file that is compared with how it was when it was opened.
type steadyFile struct {
	File
	name   string
	now    modifier
	opened int64 // when it had changed last, in nanoseconds since 1970
}

// ReadAt implements File.
func (f *steadyFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	now, unknown := f.now.Modified()
	if unknown != nil {
		return n, unknown
	}
	if changed := Unchanged(f.name, f.opened, now); changed != nil {
		return 0, changed
	}
	return n, err
}

// Unchanged says that a file has not changed since it was opened; it is given when it had changed last then and now, in
// nanoseconds since 1970.
func Unchanged(name string, opened, now int64) error {
	if opened == now {
		return nil
	}
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000") }
	return fmt.Errorf("%s changed while it was read, at %s UTC; it was opened as of %s: some of its bytes may be old and some new, so nothing is computed with them. Start again, and put new weights into another file", name, at(now), at(opened))
}
