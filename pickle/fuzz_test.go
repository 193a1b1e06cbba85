package pickle

import (
	"archive/zip"
	"bytes"
	"os"
	"strings"
	"testing"

	"spillway/internal/bounded"
	"spillway/internal/vfs"
)

// Any pickle is read or refused, and so is any file, within a bounded time and memory.
func FuzzPickle(f *testing.F) {
	for _, name := range []string{"kinds.bin", "module.bin", "whole-module.bin", "nested.bin", "legacy.bin"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 1<<14)])
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			continue
		}
		for _, e := range z.File {
			if strings.HasSuffix(e.Name, "data.pkl") {
				raw, err := contents(e)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(raw)
			}
		}
	}
	f.Add(tensorPickle("0", 1, 3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		disk := vfs.NewMemory(1 << 30)
		for name, b := range map[string][]byte{"wrapped.bin": zipped(t, raw), "raw.bin": raw} {
			if err := vfs.ReplaceBytes(disk, name, b); err != nil {
				t.Fatal(err)
			}
			bounded.Check(t, len(b), func() { readAll(t, disk, name, len(b)) })
		}
	})
}

// readAll reads every tensor of a file.
func readAll(t *testing.T, disk vfs.FS, name string, size int) {
	file, err := OpenOn(disk, name)
	if err != nil {
		return
	}
	defer file.Close()
	for _, x := range file.Tensors() {
		if x.Bytes > int64(size) {
			t.Fatalf("tensor %s has %d bytes of a file of %d", x.Name, x.Bytes, size)
		}
		if n := x.Shape.Elements(); n > 0 && x.CheckReal() == nil {
			_ = x.ReadF32(make([]float32, min(n, 300)), 0)
		}
	}
}

// Pickles that are made to take time or memory take neither.
func TestHostilePickles(t *testing.T) {
	const n = 1 << 19
	for name, raw := range map[string]string{
		"many values":            "\x80\x02" + strings.Repeat("N", 8*n) + ".",
		"many marks":             "\x80\x02" + strings.Repeat("(", n) + strings.Repeat("t", n) + ".",
		"deep tuples":            "\x80\x02N" + strings.Repeat("\x85", n) + ".",
		"many dictionaries":      "\x80\x02" + strings.Repeat("}", n-1) + ".",
		"a list of lists":        "\x80\x02]" + strings.Repeat("]a", n) + ".",
		"many memos":             "\x80\x02N" + strings.Repeat("\x94", n) + ".",
		"marks and ends":         "\x80\x02(" + strings.Repeat("N", n/2) + strings.Repeat("(e", n/4) + ".",
		"a dictionary in itself": "\x80\x02}q\x00" + strings.Repeat("h\x00h\x00s", n/8) + ".",
		"doubling tuples":        "\x80\x02N" + strings.Repeat("q\x00h\x00\x86", n/4) + ".",
		"numbers":                "\x80\x02" + strings.Repeat("K\x01", n-1) + ".",
		"many names":             "\x80\x02" + strings.Repeat("ctorch\nSize\n", n/4) + ".",
		"many tensors of one":    "\x80\x02}(" + strings.Repeat("X\x00\x00\x00\x00N", n/8) + "u.",
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory(1 << 30)
			b := zipped(t, []byte(raw))
			if err := vfs.ReplaceBytes(disk, "x.bin", b); err != nil {
				t.Fatal(err)
			}
			bounded.Check(t, len(b), func() { readAll(t, disk, "x.bin", len(b)) })
		})
	}
}
