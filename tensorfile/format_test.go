package tensorfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/shape"
)

// bare is a file format as small as one can be: a file is one tensor of bytes, named as
// the file is. Its bytes are upside down, so they cannot be read in place.
var bare = Format{Name: "bare", Extension: ".bare", Open: func(disk vfs.FS, path string) (Source, error) {
	raw, err := vfs.ReadFile(disk, path, 100)
	if err != nil {
		return nil, err
	}
	for i, b := range raw {
		raw[i] = ^b
	}
	f := &bareFile{}
	return f, f.Add(Tensor{Name: path, Type: dtype.U8, Shape: shape.Of(len(raw)), Bytes: int64(len(raw)), Path: path, Data: bytes.NewReader(raw)})
}}

type bareFile struct{ List }

func (*bareFile) Close() error { return nil }

func TestFormatsAreFoundByExtension(t *testing.T) {
	Register(bare)
	disk := vfs.NewMemory(1000)
	if err := vfs.MkdirAll(disk, "/m"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/m/model.bare", "/m/adapter_model.bare"} {
		err := vfs.WriteFile(disk, path, func(w io.Writer) error { _, err := w.Write([]byte{^byte(1), ^byte(2)}); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	for want, open := range map[string]func() (Source, error){
		"/m/model.bare":         func() (Source, error) { return OpenFolder(disk, "/m") },
		"/m/adapter_model.bare": func() (Source, error) { return OpenStem(disk, "/m", "adapter_model") },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		x, ok := s.Tensor(want)
		got := make([]byte, 2)
		if _, err := x.ReadAt(got, 0); err != nil || !ok || got[1] != 2 || x.InPlace {
			t.Errorf("%s: read %v (%v)", want, got, err)
		}
	}
	if _, err := OpenFolder(disk, "/"); !errors.Is(err, ErrNoWeights) {
		t.Errorf("a folder without weights gave %v", err)
	}
	if _, err := Open(disk, "/m/model.bin"); err == nil || !strings.Contains(err.Error(), ".bare") {
		t.Errorf("an unknown extension gave %v", err)
	}
}

func TestHostileSizesAreRefused(t *testing.T) {
	for _, s := range []shape.Shape{{1 << 62, 4}, {1 << 61}, {-1}, make(shape.Shape, 65)} {
		if n, err := Size(dtype.F32, s); err == nil {
			t.Errorf("%v has %d bytes", s, n)
		}
	}
	if n, err := Size(dtype.BF16, shape.Of(3, 5)); n != 30 || err != nil {
		t.Errorf("15 elements of bf16 have %d bytes (%v)", n, err)
	}
}

func TestListsRefuseASecondName(t *testing.T) {
	var l List
	if err := l.Add(Tensor{Name: "w", Path: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(Tensor{Name: "w", Path: "b"}); err == nil || !strings.Contains(err.Error(), "both a and b") {
		t.Errorf("a second w gave %v", err)
	}
}
