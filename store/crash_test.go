package store

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"spillway/internal/vfs"
)

var kills = flag.Int("kills", 20, "how many times TestKilledProcess kills")

const toyDir = "/state"

// recovered opens the disk and compares it with the state it says it has.
func recovered(fs vfs.FS, want [][]byte) (last int64, err error) {
	toy, last, err := openToy(fs, toyDir)
	if err != nil {
		return last, err
	}
	if last >= 0 {
		err = toy.check(want[last])
	}
	return last, errors.Join(err, toy.close())
}

// train runs the iterations from the one after last to the end.
func train(fs vfs.FS, until int64) (last int64, err error) {
	toy, last, err := openToy(fs, toyDir)
	if err != nil {
		return last, err
	}
	for last < until && err == nil {
		if err = toy.step(last + 1); err == nil {
			last++
		}
	}
	return last, errors.Join(err, toy.close())
}

func losses(disk *vfs.Memory, n int, seed uint64) (list []*vfs.Memory) {
	for i := range n {
		list = append(list, disk.AfterPowerLoss(rand.New(rand.NewPCG(uint64(i), seed))))
	}
	return list
}

// Killed at any call, with or without the loss of power, the disk holds the state of
// the last commit that returned, or of the one that was under way; and training goes
// on from it to the same end.
func TestCrashAtEveryCall(t *testing.T) {
	const until = 2
	want := states(until + 1)
	count := &vfs.Faults{Disk: vfs.NewMemory(4 << 20)}
	last, err := train(count, until)
	if must(t, err); last != until {
		t.Fatalf("trained to iteration %d", last)
	}
	for at := 1; at <= count.Calls(); at++ {
		disk := vfs.NewMemory(4 << 20)
		last, err := train(&vfs.Faults{Disk: disk, CrashAt: at}, until)
		if !errors.Is(err, vfs.ErrCrashed) && err != nil {
			t.Fatalf("crash at call %d: %v", at, err)
		}
		for _, after := range append(losses(disk, 1, uint64(at)), disk) {
			found, err := recovered(after, want)
			if err != nil || found != last && found != last+1 {
				t.Fatalf("crash at call %d after iteration %d: found %d, %v", at, last, found, err)
			}
			end, err := train(after, until)
			if err != nil || end != until {
				t.Fatalf("crash at call %d: training on ends at %d: %v", at, end, err)
			}
			if _, err := recovered(after, want); err != nil {
				t.Fatalf("crash at call %d, trained on: %v", at, err)
			}
			if names, err := after.List(toyDir); err != nil || !slices.Equal(names, []string{pageFile(0), manifestName}) {
				t.Fatalf("crash at call %d: left are %v, %v", at, names, err)
			}
		}
	}
	t.Logf("%d calls", count.Calls())
}

// After a commit has returned, no loss of power takes it away.
func TestCommitIsDurable(t *testing.T) {
	want := states(3)
	disk := vfs.NewMemory(4 << 20)
	toy, _, err := openToy(disk, toyDir)
	must(t, err)
	for i := range int64(3) {
		must(t, toy.iterate(i))
		for _, after := range losses(disk, 4, uint64(i)) {
			if found, err := recovered(after, want); err != nil || found != i-1 {
				t.Errorf("before the commit of %d: found %d, %v", i, found, err)
			}
		}
		must(t, toy.disk.Commit(i))
		for _, after := range losses(disk, 4, uint64(i)) {
			if found, err := recovered(after, want); err != nil || found != i {
				t.Errorf("after the commit of %d: found %d, %v", i, found, err)
			}
		}
	}
	must(t, toy.close())
}

// childDir, where set, makes this test binary the program that is killed.
const childDir = "SPILLWAY_TEST_STORE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// child trains for ever and says each iteration it has committed.
func child(dir string) int {
	toy, last, err := openToy(nil, dir)
	for err == nil {
		fmt.Println(last)
		if err = toy.step(last + 1); err == nil {
			last++
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A real process, killed at random instants: the state is always that of the last
// completed iteration, bit for bit, and nothing else is left.
func TestKilledProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	state, at := make([]byte, toyBytes), int64(none)
	ahead := 0
	for range *kills {
		said := trainUntilKilled(t, dir, at, rng)
		toy, last, err := openToy(nil, dir)
		must(t, err)
		if last < said || last < at || last > said+1 {
			t.Fatalf("after iteration %d was committed the disk holds %d", said, last)
		}
		if last > said {
			ahead++
		}
		for at < last {
			at++
			expected(state, at)
		}
		if last >= 0 {
			must(t, toy.check(state))
		}
		must(t, toy.close())
		for _, name := range left(t, dir) {
			if base := filepath.Base(name); base != pageFile(0) && base != manifestName {
				t.Fatalf("left behind: %s", name)
			}
		}
	}
	t.Logf("%d kills, %d of them between a commit and its word, %d iterations", *kills, ahead, at)
}

// trainUntilKilled kills a child and returns the last iteration it has said, or the
// one it had before. Every other kill waits for the first word: it falls in an
// iteration; the others may fall in the recovery.
func trainUntilKilled(t *testing.T, dir string, said int64, rng *rand.Rand) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	after := time.Duration(rng.IntN(40_000)) * time.Microsecond
	kill := func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) }
	waits := rng.IntN(2) == 0
	if !waits {
		kill()
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said, err = strconv.ParseInt(lines.Text(), 10, 64)
		must(t, err)
		if waits {
			kill()
			waits = false
		}
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the child was not killed: %v", err)
	}
	return said
}
