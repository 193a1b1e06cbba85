package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"spillway/internal/vfs"
)

// legacyMagic begins the files that PyTorch wrote before 1.6: a pickled number and a version,
// then the object, the order of its storages, and the storages themselves.
var legacyMagic = []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")

// errShort says that a pickle goes on after the bytes that were read.
var errShort = errors.New("it goes on")

// isLegacy says whether a file is one of them.
func isLegacy(file vfs.File) bool {
	begin := make([]byte, len(legacyMagic))
	_, err := file.ReadAt(begin, 0)
	return err == nil && bytes.Equal(begin, legacyMagic)
}

// addLegacy adds the tensors of such a file.
func (f *File) addLegacy(name string, file vfs.File, size int64) error {
	for n := min(size, 1<<20); ; n = min(4*n, size) {
		raw := make([]byte, n)
		if _, err := file.ReadAt(raw, 0); err != nil {
			return err
		}
		l, err := readLegacy(raw)
		if errors.Is(err, errShort) && n < min(size, maxPickle) {
			continue // storages follow the pickles, which end somewhere
		}
		if err != nil {
			return err
		}
		return f.placeLegacy(l, name, file, size)
	}
}

// legacy is what stands before the storages.
type legacy struct {
	tensors  []tensor
	storages map[string]storage
	order    []any // keys of storages
	end      int64 // where the first one begins
}

func readLegacy(raw []byte) (l legacy, err error) {
	at := len(legacyMagic)
	next := func() (any, *machine, error) {
		m := newMachine(raw)
		m.at = at
		v, err := m.run()
		at = m.at
		if err != nil {
			err = fmt.Errorf("its pickle, at byte %d: %w", m.at, err)
		}
		return v, m, err
	}
	about, _, err := next()
	if err != nil {
		return l, err
	}
	if d, ok := about.(*dict); !ok || d.get("little_endian") != true {
		return l, errors.New("its numbers are not said to be little-endian, which is what is read")
	}
	object, m, err := next()
	if err != nil {
		return l, err
	}
	if l.tensors, err = tensorsOf(object); err != nil {
		return l, err
	}
	keys, _, err := next()
	if err != nil {
		return l, err
	}
	list, ok := keys.(*list)
	if !ok {
		return l, fmt.Errorf("it has %s for the order of its storages", kindOf(keys))
	}
	l.storages, l.order, l.end = m.storages, list.items, int64(at)
	return l, nil
}

// placeLegacy finds the bytes of the tensors: storages follow each other, each after the number of its
// elements.
func (f *File) placeLegacy(l legacy, name string, file vfs.File, size int64) error {
	type place struct{ at, bytes int64 }
	places := map[string]place{}
	at := l.end
	for _, key := range l.order {
		k, _ := key.(string)
		s, known := l.storages[k]
		if !known {
			return fmt.Errorf("it has a storage %.60q that nothing refers to", fmt.Sprint(key))
		}
		var count [8]byte
		if _, err := file.ReadAt(count[:], at); err != nil {
			return fmt.Errorf("its storage %q: %w", k, err)
		}
		n, width := binary.LittleEndian.Uint64(count[:]), s.kind.Bytes(1)
		at += int64(len(count))
		if n > uint64((size-at)/width) {
			return fmt.Errorf("its storage %q has %d elements at %d of a file of %d bytes", k, n, at, size)
		}
		places[k] = place{at, int64(n) * width}
		at += int64(n) * width
	}
	for _, t := range l.tensors {
		p, ok := places[t.storage.key]
		if !ok {
			return fmt.Errorf("tensor %q is in the storage %q, which is not there", t.name, t.storage.key)
		}
		if err := f.put(t, name, file, p.at, p.bytes); err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
	}
	return nil
}
