package safetensors

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// bytesOf is a source of n bytes, all equal to fill.
func bytesOf(name string, n int, fill byte) tensorfile.Output {
	return tensorfile.Output{Name: name, Type: dtype.U8, Shape: shape.Of(n), Write: func(w io.Writer) error {
		_, err := w.Write(bytes.Repeat([]byte{fill}, n))
		return err
	}}
}

func TestWriteHoldsTensorsToTheirSize(t *testing.T) {
	for _, wrong := range []int{0, 3, 5} {
		s := bytesOf("x", 4, 1)
		s.Write = bytesOf("x", wrong, 1).Write
		if err := WriteFile(vfs.NewMemory(1000), "/x", []tensorfile.Output{s}); err == nil {
			t.Errorf("%d bytes for a tensor of 4 were accepted", wrong)
		}
	}
	boom := errors.New("boom")
	s := bytesOf("x", 4, 1)
	s.Write = func(io.Writer) error { return boom }
	if err := WriteFile(vfs.NewMemory(1000), "/x", []tensorfile.Output{s}); !errors.Is(err, boom) {
		t.Errorf("the source's error became %v", err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	for name, bad := range map[string][]Info{
		"a name twice":       {{Name: "x", Type: dtype.F32}, {Name: "x", Type: dtype.F16}},
		"the metadata name":  {{Name: "__metadata__", Type: dtype.F32}},
		"a broken name":      {{Name: "\xff", Type: dtype.F32}},
		"a block type":       {{Name: "x", Type: quant.NF4}},
		"no type":            {{Name: "x"}},
		"a negative size":    {{Name: "x", Type: dtype.F32, Shape: shape.Of(-1)}},
		"too many elements":  {{Name: "x", Type: dtype.U8, Shape: shape.Of(math.MaxInt64, 2)}},
		"too many bytes":     {{Name: "x", Type: dtype.F32, Shape: shape.Of(math.MaxInt64 / 2)}},
		"a file too large":   {{Name: "x", Type: dtype.U8, Shape: shape.Of(math.MaxInt64 / 2)}, {Name: "y", Type: dtype.U8, Shape: shape.Of(math.MaxInt64 / 2)}},
		"too many dims":      {{Name: "x", Type: dtype.U8, Shape: make(shape.Shape, 65)}},
		"too many tensors":   make([]Info, MaxTensors+1),
		"a header too large": {{Name: strings.Repeat("x", MaxHeader), Type: dtype.U8}},
	} {
		if _, err := Layout(bad, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A model far larger than memory goes through in pieces.
func TestWriteIsAStream(t *testing.T) {
	const gib = 1 << 30
	h, err := Layout([]Info{{Name: "x", Type: dtype.BF16, Shape: shape.Of(4, gib)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64<<20)
	var written countingWriter
	err = write(&written, h, func(x Info, w io.Writer) error {
		for left := x.Bytes; left > 0; left -= int64(len(piece)) {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || int64(written) != h.FileBytes() || int64(written) < 8*gib {
		t.Errorf("wrote %d of %d bytes: %v", written, h.FileBytes(), err)
	}
}

type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// Every failing call on the way gives an error, and no error gives a right file.
func TestWriteSetReportsEveryFault(t *testing.T) {
	sources := []tensorfile.Output{bytesOf("a", 40, 1), bytesOf("b", 40, 2), bytesOf("c", 40, 3)}
	count := &vfs.Faults{Disk: vfs.NewMemory(1 << 20)}
	if err := WriteSet(count, "/", sources, 80); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	for at := 1; at <= count.Calls(); at++ {
		if err := WriteSet(&vfs.Faults{Disk: vfs.NewMemory(1 << 20), FailAt: at, Err: boom}, "/", sources, 80); !errors.Is(err, boom) {
			t.Errorf("call %d of %d failed, WriteSet gave %v", at, count.Calls(), err)
		}
		short := &vfs.Faults{Disk: vfs.NewMemory(1 << 20), ShortAt: at}
		if err := WriteSet(short, "/", sources, 80); err == nil {
			checkSet(t, short.Disk, sources)
		}
	}
	if err := WriteSet(vfs.NewMemory(300), "/", sources, 80); !vfs.NoSpace(err) {
		t.Errorf("on a full disk: %v", err)
	}
}

func checkSet(t *testing.T, disk vfs.FS, sources []tensorfile.Output) {
	t.Helper()
	set, err := OpenSetOn(disk, "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		var want bytes.Buffer
		s.Write(&want)
		x, _ := set.Tensor(s.Name)
		if !bytes.Equal(content(t, x), want.Bytes()) {
			t.Errorf("tensor %s has other bytes", s.Name)
		}
	}
}

func TestReadsReportFaults(t *testing.T) {
	disk := vfs.NewMemory(1 << 20)
	if err := WriteSet(disk, "/", []tensorfile.Output{bytesOf("a", 40, 1), bytesOf("b", 50, 2)}, 60); err != nil {
		t.Fatal(err)
	}
	count := &vfs.Faults{Disk: disk}
	if _, err := OpenSetOn(count, "/"); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	for at := 1; at <= count.Calls(); at++ {
		if _, err := OpenSetOn(&vfs.Faults{Disk: disk, FailAt: at, Err: boom}, "/"); !errors.Is(err, boom) {
			t.Errorf("call %d of %d failed, OpenSet gave %v", at, count.Calls(), err)
		}
	}
	set, err := OpenSetOn(&vfs.Faults{Disk: disk, FailAt: count.Calls() + 1, Err: boom}, "/")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := set.Tensor("a")
	if _, err := a.ReadAt(make([]byte, 4), 0); !errors.Is(err, boom) {
		t.Errorf("a failing read gave %v", err)
	}
	if n, err := a.ReadAt(make([]byte, 50), 30); n != 10 || err != io.EOF {
		t.Errorf("reading over the end of a tensor: %d, %v", n, err)
	}
	if n, err := a.ReadAt(make([]byte, 1), 40); n != 0 || err != io.EOF {
		t.Errorf("reading at the end of a tensor: %d, %v", n, err)
	}
	if _, err := a.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("reading before a tensor")
	}
}

func TestSetRefuses(t *testing.T) {
	index := func(pairs ...string) string {
		var items []string
		for i := 0; i < len(pairs); i += 2 {
			items = append(items, fmt.Sprintf("%q:%q", pairs[i], pairs[i+1]))
		}
		return `{"metadata":{"total_size":[1.5,{}]},"weight_map":{` + strings.Join(items, ",") + `}}`
	}
	const one, two = "model-1.safetensors", "model-2.safetensors"
	for name, c := range map[string]struct{ index, want string }{
		"right":             {index("a", one, "b", two), ""},
		"missing tensor":    {index("a", one, "b", two, "c", two), "does not have it"},
		"unnamed shard":     {index("a", one), ""}, // shard two is then no part of the model
		"wrong file":        {index("a", two, "b", one), "should be in"},
		"missing file":      {index("a", one, "b", "model-3.safetensors"), "model.safetensors.index.json names it, so fetch or copy the missing file"},
		"in two files":      {index("a", one, "b", two, "x", "copy.safetensors"), "in both"},
		"extra in shard":    {index("a", one, "b", "both.safetensors"), "missing from the index"},
		"escape":            {index("a", "../model-1.safetensors"), "plain name"},
		"absolute":          {index("a", "/model-1.safetensors"), "plain name"},
		"backslash":         {index("a", `..\model-1.safetensors`), "plain name"},
		"hidden":            {index("a", ".safetensors"), "plain name"},
		"pickle":            {index("a", "pytorch_model.bin"), "plain name"},
		"twice":             {index("a", one, "a", two), "given twice"},
		"empty":             {index(), "missing or empty"},
		"no map":            {`{}`, "missing or empty"},
		"not text":          {`{"weight_map":{"a":1}}`, "needed"},
		"rest":              {index("a", one) + "x", "more after the end"},
		"broken metadata":   {`{"metadata":{"a":},"weight_map":{"a":"` + one + `"}}`, "invalid character"},
		"invalid UTF-8":     {"{\"weight_map\":{\"\xff\":\"x.safetensors\"}}", "UTF-8"},
		"the map two times": {`{"weight_map":{},"weight_map":{}}`, "given twice"},
	} {
		disk := vfs.NewMemory(1 << 20)
		put := func(file string, s ...tensorfile.Output) {
			if err := WriteFile(disk, "/"+file, s); err != nil {
				t.Fatal(err)
			}
		}
		put(one, bytesOf("a", 1, 1))
		put(two, bytesOf("b", 1, 2))
		put("copy.safetensors", bytesOf("a", 1, 1), bytesOf("x", 1, 1))
		put("both.safetensors", bytesOf("b", 1, 1), bytesOf("y", 1, 1))
		err := vfs.WriteFile(disk, "/"+IndexName, func(w io.Writer) error {
			_, err := io.WriteString(w, c.index)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = OpenSetOn(disk, "/")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSetWhereThereIsNone(t *testing.T) {
	disk := vfs.NewMemory(1000)
	if _, err := OpenSetOn(disk, "/"); !errors.Is(err, tensorfile.ErrNoWeights) {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{SingleName, IndexName} {
		if err := vfs.WriteFile(disk, "/"+name, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenSetOn(disk, "/"); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("a folder with both kinds: %v", err)
	}
	if err := WriteSet(disk, "/", []tensorfile.Output{bytesOf("a", 1, 1), bytesOf("a", 1, 1)}, 1); err == nil {
		t.Error("one name in two shards was written")
	}
}

// A tensor that comes earlier in the file can tell of one that comes later.
func TestTensorsWaitForOthers(t *testing.T) {
	var made []string
	source := func(name string, kind dtype.Type, after string) tensorfile.Output {
		return tensorfile.Output{Name: name, Type: kind, Shape: shape.Of(4), After: after, Write: func(w io.Writer) error {
			made = append(made, name)
			_, err := w.Write(bytes.Repeat([]byte{byte(len(made))}, int(kind.Bytes(4))))
			return err
		}}
	}
	disk := vfs.NewMemory(1 << 20)
	all := []tensorfile.Output{source("codes", dtype.U8, ""), source("scales", dtype.F32, "codes"), source("z", dtype.U8, "codes"), source("first", dtype.F32, "")}
	if err := WriteSet(disk, "/", all, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(made, " "); got != "first codes scales z" {
		t.Errorf("written in the order %s", got)
	}
	set, err := OpenSetOn(disk, "/")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]byte{"first": 1, "codes": 2, "scales": 3, "z": 4} {
		x, _ := set.Tensor(name)
		for _, b := range content(t, x) {
			if b != want {
				t.Fatalf("%s holds %d, want %d", name, b, want)
			}
		}
	}
	shards, err := Split(all, 20)
	if err != nil || len(shards) != 2 || len(shards[0].Tensors) != 3 {
		t.Errorf("%d shards: %v", len(shards), err)
	}
	if _, err := Split(all[1:], 20); err == nil {
		t.Error("a tensor was parted from the one it waits for")
	}
	count := &vfs.Faults{Disk: vfs.NewMemory(1 << 20)}
	if err := WriteSet(count, "/", all, 1<<20); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	for at := 1; at <= count.Calls(); at++ {
		if err := WriteSet(&vfs.Faults{Disk: vfs.NewMemory(1 << 20), FailAt: at, Err: boom}, "/", all, 1<<20); !errors.Is(err, boom) {
			t.Errorf("call %d of %d failed, WriteSet gave %v", at, count.Calls(), err)
		}
	}
}

// write writes a file as a stream: the header, then fill is called for each tensor
// in file order and must write exactly its bytes.
func write(w io.Writer, h *Header, fill func(Info, io.Writer) error) error {
	out := bufio.NewWriterSize(w, int(min(writeBuffer, h.FileBytes())))
	if err := stream(out, h, fill); err != nil {
		return err
	}
	return out.Flush()
}
