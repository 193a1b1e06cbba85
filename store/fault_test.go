package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/offheap"
	"spillway/internal/vfs"
)

// Any one call that fails or writes short is reported, and what follows is right all
// the same: roll back and carry on, or, where it is not known which commit counts,
// open again and recover.
func TestFailureAtEveryCall(t *testing.T) {
	const until = 2
	want := states(until + 1)
	count := &vfs.Faults{Disk: vfs.NewMemory(4 << 20)}
	_, err := train(count, until)
	must(t, err)
	goroutines, mapped := runtime.NumGoroutine(), offheap.Mapped()
	for at := 1; at <= count.Calls(); at++ {
		for _, short := range []bool{false, true} {
			disk := vfs.NewMemory(4 << 20)
			faults := &vfs.Faults{Disk: disk, FailAt: at, Err: syscall.EIO}
			if short {
				faults = &vfs.Faults{Disk: disk, ShortAt: at}
			}
			last, err := carryOn(faults, until)
			if !short && !errors.Is(err, syscall.EIO) {
				t.Fatalf("call %d failed and nobody said so: %v", at, err)
			}
			if last < until {
				if _, err := train(disk, until); err != nil {
					t.Fatalf("call %d failed: opened again: %v", at, err)
				}
			}
			if last, err := recovered(disk, want); err != nil || last != until {
				t.Fatalf("call %d failed: the disk holds %d, %v", at, last, err)
			}
		}
	}
	if offheap.Mapped() != mapped {
		t.Errorf("%d bytes are still mapped", offheap.Mapped()-mapped)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= goroutines { // ended ones may take a moment to be gone
			return
		}
	}
	t.Errorf("%d goroutines, before there were %d", runtime.NumGoroutine(), goroutines)
}

// carryOn trains and rolls back after an error. It returns the first error, also
// where it could make up for it.
func carryOn(fs vfs.FS, until int64) (last int64, first error) {
	toy, last, err := openToy(fs, toyDir)
	if err != nil {
		return none, err
	}
	for tries := 0; last < until && tries < 10; tries++ {
		err := toy.step(last + 1)
		first = errors.Join(first, err)
		if err == nil || toy.disk.iteration() == last+1 { // committed, though clearing up failed
			last++
		} else if toy.disk.Rollback() != nil {
			break
		}
	}
	return last, errors.Join(first, toy.close())
}

// A failed copy is reported once, later copies of the queue are skipped until then,
// and the disk does not commit what it may not have.
func TestFailedWriteIsNotCommitted(t *testing.T) {
	boom := errors.New("boom")
	faults := &vfs.Faults{Disk: vfs.NewMemory(4 << 20), Err: boom}
	toy, _, err := openToy(faults, toyDir)
	must(t, err)
	must(t, toy.step(0))
	must(t, toy.disk.Begin(1))
	faults.FailAt = faults.Calls() + 1
	must(t, toy.out.Copy(part(toy.arena, 0, 100), part(toy.host, 0, 100)))
	must(t, toy.out.Copy(part(toy.arena, 200, 100), part(toy.host, 0, 100)))
	if err := toy.out.Sync(); !errors.Is(err, boom) {
		t.Errorf("Sync gives %v", err)
	}
	must(t, toy.out.Sync())
	faults.FailAt = faults.Calls() + 2 // of a partial page the old content is read first
	must(t, toy.out.Copy(part(toy.arena, 0, 100), part(toy.host, 0, 100)))
	if err := toy.out.Sync(); !errors.Is(err, boom) {
		t.Errorf("Sync gives %v", err)
	}
	if err := toy.disk.Commit(1); err == nil || !strings.Contains(err.Error(), "roll back") {
		t.Errorf("Commit after a failed write gives %v", err)
	}
	must(t, toy.disk.Rollback(), toy.step(1), toy.check(states(2)[1]), toy.close())
}

// A bit that flips on disk is an error that names the file, the page and both sums.
func TestFlippedBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	disk := vfs.NewMemory(4 << 20)
	_, err := train(disk, 1)
	must(t, err)
	for range 50 {
		toy, last, err := openToy(disk, toyDir)
		must(t, err)
		must(t, toy.close())
		flip := rng.Int64N(toyBytes)
		page := int64(none)
		faults := &vfs.Faults{Disk: disk, Corrupt: func(name string, off int64, p []byte) {
			if at := flip - off; strings.HasSuffix(name, ".pages") && at >= 0 && at < int64(len(p)) {
				p[at] ^= 1 << (flip % 8)
				page = flip / pageBytes * pageBytes
			}
		}}
		toy, _, err = openToy(faults, toyDir)
		must(t, err)
		err = toy.check(states(last + 1)[last])
		var sum *ChecksumError
		if page == none { // a page of the other generation: nobody read it
			must(t, err)
		} else if !errors.As(err, &sum) || sum.Offset != page || sum.Want == sum.Got || !strings.HasSuffix(sum.File, pageFile(0)) {
			t.Errorf("a flipped bit at %d gives %v", flip, err)
		}
		must(t, toy.close())
	}
}

// Begin, Commit and Rollback keep iterations apart.
func TestIterationsAreNotMixed(t *testing.T) {
	toy, _, err := openToy(vfs.NewMemory(4<<20), toyDir)
	must(t, err)
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	refused("a commit of nothing begun", toy.disk.Commit(0))
	refused("iteration 1 on an empty disk", toy.disk.Begin(1))
	must(t, toy.step(0))
	refused("iteration 0 again", toy.disk.Begin(0))
	refused("iteration 2 after 0", toy.disk.Begin(2))
	must(t, toy.disk.Begin(1))
	refused("iteration 2 in the middle of 1", toy.disk.Begin(2))
	refused("a commit of an earlier iteration", toy.disk.Commit(0))
	must(t, toy.disk.Commit(4)) // several iterations at once
	must(t, toy.out.Copy(part(toy.arena, 0, 9), part(toy.host, 50, 9)), toy.out.Sync())
	refused("an iteration on bytes changed outside of one", toy.disk.Begin(5))
	if _, err := toy.disk.Recover(); err == nil {
		t.Error("recovered under live memory")
	}
	must(t, toy.disk.Rollback(), toy.check(states(1)[0]), toy.disk.Begin(5), toy.disk.Rollback())
	must(t, toy.close())
}

// A state is not taken for that of a run with other regions or another model.
func TestOtherRun(t *testing.T) {
	disk := vfs.NewMemory(4 << 20)
	put := func(name string, bytes int) {
		must(t, vfs.WriteFile(disk, name, func(w io.Writer) error { _, err := w.Write(make([]byte, bytes)); return err }))
	}
	put("/a", 1000)
	model := func(name string, at int64) []Region {
		return []Region{{Kind: Journaled, Bytes: 500}, {Kind: InPlace, Offset: 500, Bytes: 500, File: name, At: at}}
	}
	first := open(t, Options{Dir: toyDir, Disk: disk, Regions: model("/a", 0)})
	m := alloc(t, first, 1000)
	must(t, first.Begin(0), first.Commit(0), m.Free(), first.Close())
	must(t, disk.Mkdir("/moved"))
	put("/moved/a", 1000)
	try := func(bytes int64, regions []Region) error {
		d := open(t, Options{Dir: toyDir, Disk: disk, Regions: regions})
		_, err := d.Recover()
		must(t, err)
		m, err := d.Alloc(bytes)
		if err == nil {
			err = m.Free()
		}
		return errors.Join(err, d.Close())
	}
	must(t, try(1000, model("/a", 0)), try(1000, model("/moved/a", 0)))
	put("/a", 1001)
	for what, err := range map[string]error{
		"another size":            try(1001, model("/moved/a", 0)),
		"other regions":           try(1000, nil),
		"another place":           try(1000, model("/moved/a", 1)),
		"a changed file":          try(1000, model("/a", 0)),
		"fewer journaled regions": try(1000, model("/moved/a", 0)[1:]),
	} {
		if err == nil || !strings.Contains(err.Error(), "another run") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// manifestOf is a manifest as a file has it.
func manifestOf(t testing.TB) []byte {
	disk := vfs.NewMemory(4 << 20)
	_, err := train(disk, 0)
	must(t, err)
	raw, err := vfs.ReadFile(disk, toyDir+"/"+manifestName, 1<<20)
	must(t, err)
	return raw
}

// A manifest with any byte changed, cut off or added is refused.
func TestBrokenManifest(t *testing.T) {
	raw := manifestOf(t)
	for i := range raw {
		for _, broken := range [][]byte{raw[:i], flipped(raw, i)} {
			if m, err := parseManifest(bytesFile{bytes.NewReader(broken)}); err == nil {
				t.Errorf("byte %d of %d broken gives %+v", i, len(raw), m)
			}
		}
	}
	if _, err := parseManifest(bytesFile{bytes.NewReader(append(bytes.Clone(raw), 0))}); err == nil {
		t.Error("a byte too many was accepted")
	}
}

func flipped(raw []byte, i int) []byte {
	out := bytes.Clone(raw)
	out[i] ^= 0x10
	return out
}

// bytesFile is bytes as an open file.
type bytesFile struct{ *bytes.Reader }

func (f bytesFile) Size() (int64, error)               { return f.Reader.Size(), nil }
func (f bytesFile) Write([]byte) (int, error)          { return 0, errors.ErrUnsupported }
func (f bytesFile) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (f bytesFile) Sync() error                        { return nil }
func (f bytesFile) Close() error                       { return nil }

// FuzzManifest: no file makes the reader panic or allocate more than the file is long.
func FuzzManifest(f *testing.F) {
	f.Add(manifestOf(f))
	f.Add([]byte(magic + "\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sum := crc32.Checksum(raw, castagnoli) // or nothing gets past the last check
		for _, file := range [][]byte{raw, binary.LittleEndian.AppendUint32(bytes.Clone(raw), sum)} {
			m, err := parseManifest(bytesFile{bytes.NewReader(file)})
			if err == nil && m == nil {
				t.Error("neither a manifest nor an error")
			}
		}
	})
}

// After a commit of which nobody knows whether it happened no journaled page is written:
// either state may be the one that is found.
func TestUndecidedCommit(t *testing.T) {
	boom := errors.New("boom")
	disk := vfs.NewMemory(4 << 20)
	faults := &vfs.Faults{Disk: disk, Err: boom}
	toy, _, err := openToy(faults, toyDir)
	must(t, err)
	must(t, toy.step(0), toy.iterate(1))
	faults.FailAt = faults.Calls() + 6 // sync, create, write, write, sync, rename
	if err := toy.disk.Commit(1); !errors.Is(err, boom) {
		t.Fatalf("Commit gives %v", err)
	}
	must(t, toy.out.Copy(part(toy.arena, 0, 9), part(toy.host, 0, 9)))
	for what, err := range map[string]error{
		"a write": toy.out.Sync(), "Begin": toy.disk.Begin(2), "Commit": toy.disk.Commit(1), "Rollback": toy.disk.Rollback(),
	} {
		if err == nil || !strings.Contains(err.Error(), "recover") {
			t.Errorf("%s gives %v", what, err)
		}
	}
	must(t, toy.out.Copy(part(toy.arena, toyScratch, 9), part(toy.host, 0, 9)), toy.out.Sync())
	must(t, toy.close())
	if last, err := recovered(disk, states(2)); err != nil || last < 0 {
		t.Errorf("the disk holds %d, %v", last, err)
	}
}
