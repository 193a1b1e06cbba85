package checkpoint

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/vfs"
)

// world is a state of the disk before a save, and what may be found after it.
type world struct {
	name      string
	before    []int64 // iterations saved before, as variant 0
	keep      int
	iteration int64 // saved, as variant 1, when the crash comes
}

var worlds = []world{
	{"the first save", nil, 1, 1},
	{"one is removed after", []int64{1}, 1, 2},
	{"two are kept", []int64{1, 2, 3}, 2, 4},
	{"the same iteration again", []int64{1}, 1, 1},
	{"back to an earlier one", []int64{1, 2}, 1, 1},
}

// prepare makes the disk before the crash.
func (w world) prepare(t *testing.T) (Dir, *vfs.Memory) {
	d, disk := inMemory(w.keep)
	for _, i := range w.before {
		save(t, d, i, 0)
	}
	return d, disk
}

// copyOf makes another disk of the same content.
func copyOf(disk *vfs.Memory) *vfs.Memory { return losses(disk, 1, 0)[0] }

// verify demands the new checkpoint or, unless the save reported success, the
// newest old one, whole.
func (w world) verify(t *testing.T, d Dir, saved bool) {
	t.Helper()
	c, err := d.Latest()
	if errors.Is(err, ErrNone) && w.before == nil && !saved {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Skipped) > 0 {
		t.Fatalf("something half done has a checkpoint's name: %v", c.Skipped)
	}
	isNew := check(t, c) == 1 && c.Iteration == w.iteration
	if !isNew && (saved || w.before == nil || c.Iteration != slices.Max(w.before)) {
		t.Fatalf("found iteration %d; the new one is %d, saved: %v", c.Iteration, w.iteration, saved)
	}
}

// A crash at any call, with or without the loss of power, leaves the old or the new
// checkpoint, and the next save clears up. After a save has returned, no loss of
// power takes it away.
func TestCrashAtEveryCall(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			d, before := w.prepare(t)
			disk := copyOf(before)
			count := &vfs.Faults{Disk: disk}
			d.FS = count
			save(t, d, w.iteration, 1)
			for _, after := range losses(disk, 8, 0) {
				d.FS = after
				w.verify(t, d, true)
			}
			for at := 1; at <= count.Calls(); at++ {
				w.crashAt(t, d, copyOf(before), at)
			}
		})
	}
}

// losses draws states of the disk after a loss of power.
func losses(disk *vfs.Memory, n, seed int) []*vfs.Memory {
	var out []*vfs.Memory
	for i := range n {
		out = append(out, disk.AfterPowerLoss(rand.New(rand.NewPCG(uint64(i), uint64(seed)))))
	}
	return out
}

func (w world) crashAt(t *testing.T, d Dir, disk *vfs.Memory, at int) {
	d.FS = &vfs.Faults{Disk: disk, CrashAt: at}
	path, err := d.Save(snapshot(w.iteration, 1))
	if err != nil && !errors.Is(err, vfs.ErrCrashed) {
		t.Fatalf("crash at call %d: %v", at, err)
	}
	after := append([]*vfs.Memory{disk}, losses(disk, 4, at)...)
	for _, disk := range after {
		d.FS = disk
		w.verify(t, d, path != "")
	}
	for _, disk := range after[:2] {
		d.FS = disk
		save(t, d, 9, 0)
		if i, _ := latest(t, d); i != 9 {
			t.Fatalf("after a crash at call %d and another save the latest is %d", at, i)
		}
		if found := names(t, d); !slices.ContainsFunc(found, visible) || slices.ContainsFunc(found, hiddenName) {
			t.Fatalf("after a crash at call %d and another save %v are left", at, found)
		}
	}
}

// Two crashes in a row: the save that clears up is itself killed.
func TestCrashWhileClearingUp(t *testing.T) {
	w := worlds[3]
	rng := rand.New(rand.NewPCG(7, 7))
	d, before := w.prepare(t)
	for range 100 {
		disk := copyOf(before)
		for range 3 {
			d.FS = &vfs.Faults{Disk: disk, CrashAt: 1 + rng.IntN(70)}
			d.Save(snapshot(w.iteration, 1))
			if rng.IntN(2) == 0 {
				disk = disk.AfterPowerLoss(rng)
			}
			d.FS = disk
			w.verify(t, d, false)
		}
	}
}

// A failing call is either reported or harmless, and the disk still has the old or the new
// checkpoint. For instance, reading another checkpoint's manifest may fail: a bad sector
// there must not keep a run from saving.
func TestFailureAtEveryCall(t *testing.T) {
	boom := errors.New("boom")
	for _, w := range worlds {
		d, before := w.prepare(t)
		count := &vfs.Faults{Disk: copyOf(before)}
		d.FS = count
		save(t, d, w.iteration, 1)
		for at := 1; at <= count.Calls(); at++ {
			disk := copyOf(before)
			d.FS = &vfs.Faults{Disk: disk, FailAt: at, Err: boom}
			path, err := d.Save(snapshot(w.iteration, 1))
			if path == "" && !errors.Is(err, boom) {
				t.Errorf("%s: call %d failed and Save gave %v", w.name, at, err)
			}
			d.FS = disk
			w.verify(t, d, path != "")
			if w.before != nil && !slices.ContainsFunc(names(t, d), visible) {
				t.Errorf("%s: call %d failed and left only %v", w.name, at, names(t, d))
			}
			for _, after := range losses(disk, 2, at) {
				d.FS = after
				w.verify(t, d, path != "")
			}
		}
	}
}

func hiddenName(name string) bool { return strings.HasPrefix(name, ".") }
func visible(name string) bool    { return !hiddenName(name) }

// saverDir, if set, makes this test binary the program that is killed.
const saverDir = "SPILLWAY_TEST_SAVER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(saverDir); dir != "" {
		os.Exit(saver(dir))
	}
	os.Exit(m.Run())
}

// saver goes on from the latest checkpoint and saves one iteration after another.
func saver(dir string) int {
	d := Dir{Path: dir, Keep: 2}
	next := int64(1)
	if c, err := d.Latest(); err == nil {
		next = c.Iteration + 1
		c.Close()
	} else if !errors.Is(err, ErrNone) {
		return 1
	}
	for ; ; next++ {
		if _, err := d.Save(snapshot(next, 1)); err != nil {
			return 1
		}
		os.Stdout.Write([]byte{'.'}) // the parent waits for the first
	}
}

// A real process, killed at random instants: what is left is always whole, never
// goes back, and the next process goes on from it.
func TestKilledProcess(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	last, halfDone := int64(0), 0
	for range 20 {
		saveUntilKilled(t, d.Path)
		if slices.ContainsFunc(names(t, d), hiddenName) {
			halfDone++
		}
		c, err := d.Latest()
		if err != nil {
			t.Fatal(err)
		}
		check(t, c)
		if c.Iteration <= last || len(c.Skipped) > 0 {
			t.Fatalf("after iteration %d the latest is %d, skipped %v", last, c.Iteration, c.Skipped)
		}
		last = c.Iteration
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("20 kills, %d of them inside a save, %d iterations", halfDone, last)
}

// saveUntilKilled kills a saver up to 15 ms after its first save.
func saveUntilKilled(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), saverDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the saver did not save: %v", err)
	}
	time.Sleep(time.Duration(rand.IntN(15_000)) * time.Microsecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("the saver ended by itself: %v", err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the saver was not killed: %v", err)
	}
}
