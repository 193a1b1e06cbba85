package vfs

import (
	"errors"
	"io"
	"os"
	"strings"
)

// ErrInDoubt is wrapped by errors of Replace after which a reader may find the old file or
// the new one.
var ErrInDoubt = errors.New("the old file or the new one may be there")

// Replace writes a file so that whoever reads it, also after a crash, finds the old one or
// the new one whole: the bytes go to a hidden file next to it, are synced, and the file gets
// its name in one rename. Several processes may replace the same file at once; one of them
// wins. After an error without ErrInDoubt the old file is still there.
func Replace(d FS, name string, write func(io.Writer) error) error {
	w, err := Begin(d, name)
	if err != nil {
		return err
	}
	if err := write(w); err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Commit()
}

// ReplaceBytes is Replace for bytes at hand.
func ReplaceBytes(d FS, name string, b []byte) error {
	return Replace(d, name, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// WriteOnce writes a file of this computer that appears whole, unless there is one of that
// name already: then the error is fs.ErrExist and the file stays as it is.
func WriteOnce(name string, b []byte) error {
	w, err := Begin(OS, name)
	if err != nil {
		return err
	}
	if _, err = w.Write(b); err == nil {
		err = w.file.Sync()
	}
	if err == nil {
		err = os.Link(w.partial, name) // unlike a rename, it never replaces
	}
	return errors.Join(err, w.Discard())
}

const partialSuffix = ".partial"

// IsPartial says whether a name in a folder is of something that Replace or Publish began
// and did not end, perhaps because the process was killed.
func IsPartial(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, partialSuffix)
}
