package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// The test model: names, types and shapes of its tensors and of their state.
var (
	modelTensors = []safetensors.Info{
		{Name: "w", Type: dtype.BF16, Shape: shape.Of(30, 20)}, {Name: "b", Type: dtype.F32, Shape: shape.Of(30)}, {Name: "v", Type: dtype.F32, Shape: shape.Of(200)},
	}
	stateTensors = []safetensors.Info{
		{Name: "exp_avg.w", Type: dtype.F32, Shape: shape.Of(30, 20)}, {Name: "exp_avg_sq.w", Type: dtype.F32, Shape: shape.Of(30, 20)},
		{Name: "steps", Type: dtype.I64, Shape: shape.Of()},
	}
)

// bits are the bytes of a tensor at an iteration and a variant: any pattern may
// occur, so NaNs and negative zeros too.
func bits(x safetensors.Info, iteration int64, variant uint64) []byte {
	p := make([]byte, x.Type.Bytes(x.Shape.Elements()))
	seed := [32]byte{byte(iteration), byte(iteration >> 8), byte(variant), byte(len(x.Name))}
	rand.NewChaCha8(seed).Read(p)
	return p
}

func sources(infos []safetensors.Info, iteration int64, variant uint64) []tensorfile.Output {
	var out []tensorfile.Output
	for _, x := range infos {
		out = append(out, tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
			_, err := w.Write(bits(x, iteration, variant))
			return err
		}})
	}
	return out
}

// position stands for a trainer's own state.
type position struct {
	Epoch, Token int64
	Rate         float64
	Variant      uint64
}

// snapshot is what the run looks like at an iteration. Variants differ in content.
func snapshot(iteration int64, variant uint64) Snapshot {
	text, err := os.ReadFile("../hf/defaults/llama.json")
	if err != nil {
		panic(err)
	}
	config, err := hf.ParseConfig(text)
	if err != nil {
		panic(err)
	}
	return Snapshot{
		Iteration: iteration,
		Model:     hf.Model{Config: config, Tensors: sources(modelTensors, iteration, variant), ShardBytes: 1500},
		State:     sources(stateTensors, iteration, variant),
		Trainer:   position{3, 1 << 60, 0.1 / 3, variant},
	}
}

// check makes sure that a checkpoint is, bit for bit, some variant of the snapshot
// of its iteration, and returns the variant.
func check(t testing.TB, c *Checkpoint) uint64 {
	t.Helper()
	var p position
	if err := json.Unmarshal(c.Trainer, &p); err != nil {
		t.Fatal(err)
	}
	if p != (position{3, 1 << 60, 0.1 / 3, p.Variant}) {
		t.Fatalf("the trainer came back as %+v", p)
	}
	compare := func(infos []safetensors.Info, find func(string) (tensorfile.Tensor, bool)) {
		for _, x := range infos {
			got, ok := find(x.Name)
			if !ok || got.Type != x.Type || !got.Shape.Equal(x.Shape) {
				t.Fatalf("tensor %s: found %v, %v", x.Name, ok, got.Type)
			}
			raw, err := io.ReadAll(io.NewSectionReader(got, 0, got.Bytes))
			if err != nil || !bytes.Equal(raw, bits(x, c.Iteration, p.Variant)) {
				t.Fatalf("tensor %s of iteration %d has other bits (%v)", x.Name, c.Iteration, err)
			}
		}
	}
	compare(modelTensors, c.Folder.Tensor)
	compare(stateTensors, c.State.Tensor)
	return p.Variant
}

func save(t testing.TB, d Dir, iteration int64, variant uint64) string {
	t.Helper()
	path, err := d.Save(snapshot(iteration, variant))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// latest opens, checks and closes the newest checkpoint.
func latest(t testing.TB, d Dir) (iteration int64, variant uint64) {
	t.Helper()
	c, err := d.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Iteration, check(t, c)
}

func inMemory(keep int) (Dir, *vfs.Memory) {
	disk := vfs.NewMemory(1 << 20)
	return Dir{Path: "/run", Keep: keep, FS: disk}, disk
}

func names(t testing.TB, d Dir) []string {
	t.Helper()
	n, err := d.fs().List(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSaveAndRestore(t *testing.T) {
	d := Dir{Path: t.TempDir() + "/deep/run", Keep: 2}
	if _, err := d.Latest(); !errors.Is(err, ErrNone) {
		t.Errorf("before the first save: %v", err)
	}
	tokenizer := t.TempDir() + "/tokenizer.json"
	if err := os.WriteFile(tokenizer, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	for i := range int64(4) {
		s := snapshot(10*i, 0)
		s.Model.Files = []string{tokenizer}
		path, err := d.Save(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := latest(t, d); got != 10*i {
			t.Fatalf("after saving %s the latest is %d", path, got)
		}
	}
	if got := names(t, d); !slices.Equal(got, []string{"step-00000020", "step-00000030"}) {
		t.Errorf("kept %v", got)
	}
	folder, err := hf.Open(d.Path + "/step-00000030")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if len(folder.Tensors()) != len(modelTensors) || folder.Config.ModelType != "llama" || !slices.Equal(folder.Tokenizer, []string{"tokenizer.json"}) {
		t.Error("a checkpoint is not the model folder it was made from")
	}
	c, err := Open(d.Path + "/step-00000020")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check(t, c)
}

func TestKeepAll(t *testing.T) {
	d, _ := inMemory(0)
	for i := range int64(5) {
		save(t, d, i, 0)
	}
	if got := names(t, d); len(got) != 5 {
		t.Errorf("kept %v", got)
	}
}

// The checkpoint of AlwaysKeep stays however old it is, and does not count for Keep.
func TestSpared(t *testing.T) {
	d, _ := inMemory(2)
	d.AlwaysKeep = 2
	for i := range int64(6) {
		save(t, d, i, 0)
	}
	if got := names(t, d); !slices.Equal(got, []string{"step-00000002", "step-00000004", "step-00000005"}) {
		t.Errorf("kept %v", got)
	}
}

// After going back to an earlier iteration, the checkpoint saved last is the newest, and
// checkpoints of higher iterations do not make the new ones be removed.
func TestGoingBack(t *testing.T) {
	d, _ := inMemory(2)
	for _, i := range []int64{10, 20, 30} {
		save(t, d, i, 0)
	}
	save(t, d, 25, 1)
	if i, v := latest(t, d); i != 25 || v != 1 {
		t.Errorf("the latest is %d of variant %d", i, v)
	}
	save(t, d, 30, 2) // takes the place of the old one
	if i, v := latest(t, d); i != 30 || v != 2 {
		t.Errorf("the latest is %d of variant %d", i, v)
	}
	if got := names(t, d); !slices.Equal(got, []string{"step-00000025", "step-00000030"}) {
		t.Errorf("kept %v", got)
	}
}

func TestSaveRefuses(t *testing.T) {
	d, disk := inMemory(1)
	save(t, d, 1, 0)
	if err := disk.Mkdir("/other"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteBytes(disk, "/other/"+TrainerName, nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Snapshot){
		"negative":      func(s *Snapshot) { s.Iteration = -1 },
		"not JSON":      func(s *Snapshot) { s.Trainer = func() {} },
		"large trainer": func(s *Snapshot) { s.Trainer = strings.Repeat("x", maxJSON) },
		"a name taken":  func(s *Snapshot) { s.Model.Files = []string{"/other/" + TrainerName} },
		"missing file":  func(s *Snapshot) { s.Model.Files = []string{"/none"} },
		"bad tensor":    func(s *Snapshot) { s.State[0].Type = quant.NF4 },
		"bad config":    func(s *Snapshot) { s.Model.Config.Layers = -1 },
	} {
		s := snapshot(2, 0)
		change(&s)
		if path, err := d.Save(s); err == nil || path != "" {
			t.Errorf("%s: %q, %v", name, path, err)
		}
		if got := names(t, d); !slices.Equal(got, []string{"step-00000001"}) {
			t.Errorf("%s: left %v", name, got)
		}
	}
}

// A checkpoint has the files of a folder within the model's, with their checksums.
func TestChatTemplatesInTheirFolder(t *testing.T) {
	d, disk := inMemory(1)
	const from = "/model/additional_chat_templates"
	if err := errors.Join(vfs.MkdirAll(disk, from), vfs.WriteBytes(disk, from+"/tool_use.jinja", []byte("tools"))); err != nil {
		t.Fatal(err)
	}
	s := snapshot(1, 0)
	s.Model.Files = []string{from + "/tool_use.jinja"}
	path, err := d.Save(s)
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(path, "additional_chat_templates", "tool_use.jinja")
	if got, err := vfs.ReadFile(disk, saved, 100); err != nil || string(got) != "tools" {
		t.Errorf("%q, %v", got, err)
	}
	m, err := readManifest(disk, path)
	if err == nil {
		err = m.verify(disk, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(disk.Remove(saved), vfs.WriteBytes(disk, saved, []byte("fools"))); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(disk, path); err == nil || !strings.Contains(err.Error(), "tool_use.jinja") {
		t.Errorf("a changed template: %v", err)
	}
}

// Any flipped bit in any file makes Latest fall back and say so.
func TestBitFlips(t *testing.T) {
	d, disk := inMemory(0)
	save(t, d, 1, 0)
	newest := save(t, d, 2, 0)
	files, err := disk.List(newest)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range files {
		info, err := disk.Stat(newest + "/" + f)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			at, bit := rng.Int64N(info.Size), byte(1)<<rng.IntN(8)
			flipped := d
			flipped.FS = &vfs.Faults{Disk: disk, Corrupt: func(name string, off int64, p []byte) {
				if name == newest+"/"+f && at >= off && at < off+int64(len(p)) {
					p[at-off] ^= bit
				}
			}}
			c, err := flipped.Latest()
			if err != nil {
				t.Fatalf("%s, byte %d ^ %#x: %v", f, at, bit, err)
			}
			check(t, c)
			if harmless := f == ManifestName && c.Iteration == 2 && len(c.Skipped) == 0; harmless {
				continue // white space turned into other white space
			}
			if c.Iteration != 1 || len(c.Skipped) != 1 || !strings.Contains(c.Skipped[0].Error(), newest) {
				t.Fatalf("%s, byte %d ^ %#x: iteration %d, skipped %v", f, at, bit, c.Iteration, c.Skipped)
			}
		}
	}
}

func TestDamage(t *testing.T) {
	d, disk := inMemory(2)
	save(t, d, 1, 0)
	newest := save(t, d, 2, 0)
	truncate := func(path string) {
		if err := vfs.WriteFile(disk, path, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	truncate(newest + "/" + ManifestName)
	c, err := d.Latest()
	if err != nil || c.Iteration != 1 || len(c.Skipped) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	save(t, d, 3, 0)
	save(t, d, 4, 0) // what cannot be read is neither counted nor removed
	if got := names(t, d); !slices.Equal(got, []string{"step-00000002", "step-00000003", "step-00000004"}) {
		t.Errorf("kept %v", got)
	}
	for _, i := range []int{3, 4} {
		truncate(fmt.Sprintf("/run/step-%08d/%s", i, StateName))
	}
	if _, err := d.Latest(); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "all 3 checkpoints") {
		t.Errorf("all damaged: %v", err)
	}
	if err := disk.Rename(newest, "/run/step-00000009"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOn(disk, "/run/step-00000009"); err == nil {
		t.Error("a checkpoint under another's name was opened")
	}
}

func TestFullDisk(t *testing.T) {
	for _, room := range []int64{100, 9_000} { // too little to begin, and to end
		disk := vfs.NewMemory(10_000 + room)
		d := Dir{Path: "/run", Keep: 1, FS: disk}
		save(t, d, 1, 0)
		free, err := disk.Free("/run")
		if err != nil {
			t.Fatal(err)
		}
		fill := free - room
		if err := vfs.WriteFile(disk, "/ballast", func(w io.Writer) error {
			_, err := w.Write(make([]byte, max(fill, 0)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s := snapshot(2, 0)
		needed, err := s.bytes()
		if err != nil {
			t.Fatal(err)
		}
		path, err := d.Save(s)
		var space *vfs.SpaceError
		if path != "" || !errors.As(err, &space) || space.Needed != needed {
			t.Errorf("%d bytes of room: %q, %v", room, path, err)
		}
		if i, _ := latest(t, d); i != 1 {
			t.Errorf("%d bytes of room: the latest is %d", room, i)
		}
		if got := names(t, d); !slices.Equal(got, []string{"step-00000001"}) {
			t.Errorf("%d bytes of room: left %v", room, got)
		}
	}
}

// Who may save to a folder removes what killed processes left there.
func TestClaimRemovesLeftovers(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "run")}
	for _, name := range []string{".step-00000007.partial", ".step-00000003.removing"} {
		if err := os.MkdirAll(filepath.Join(d.Path, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".step-00000007.lock", filepath.Join(".step-00000007.partial", "config.json")} {
		if err := os.WriteFile(filepath.Join(d.Path, name), []byte("process 1"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	release, err := d.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if left, err := vfs.OS.List(d.Path); err != nil || !slices.Equal(left, []string{".checkpoints.lock"}) {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
