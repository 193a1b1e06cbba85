package run_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/plan"
	"spillway/rig"
	"spillway/store"
	"spillway/train"
)

var diskKills = flag.Int("diskkills", 10, "how often TestKilledDiskTraining kills its training")

// diskChildJob in the environment makes this binary a process that trains: the
// diskTraining as JSON.
const diskChildJob = "SPILLWAY_TEST_DISK_TRAINING"

// diskChild trains and says each iteration it has done, at the end what memory the
// plan takes of the process and the most it had.
func diskChild(job string) error {
	var d diskTraining
	if err := json.Unmarshal([]byte(job), &d); err != nil {
		return err
	}
	_, p, err := d.run(func(r train.Report) { fmt.Println("iteration", r.Iteration) })
	if err != nil {
		return err
	}
	resident, err := rig.PeakResident()
	if err != nil {
		return err
	}
	fmt.Println("planned", p.Peak()[plan.OnDevice]+p.Peak()[plan.OnHost])
	fmt.Println("state", state(p))
	fmt.Println("resident", resident)
	return nil
}

func (d diskTraining) command(t *testing.T) *exec.Cmd {
	t.Helper()
	job, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), diskChildJob+"="+string(job))
	cmd.Stderr = os.Stderr
	return cmd
}

// diskOverhead is the host memory a training run from disk takes besides what its plan
// says: the disk's buffers (8 MiB for each queue, in use half of that), 20 MiB of
// staging, and the program with its runtime and the plan.
const diskOverhead = 64 << 20

// The memory of the whole process is what the plan says and a constant, far less than
// the training's state.
func TestDiskTrainingBoundsMemory(t *testing.T) {
	d := diskTraining{Model: configFile(t, deep(32, 256)), Disk: t.TempDir(), Out: t.TempDir(), Device: 20 << 20, Host: 40 << 20, Iterations: 2}
	out, err := d.command(t).Output()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if said[name], err = strconv.ParseInt(number, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("planned %d, resident %d, state %d", said["planned"], said["resident"], said["state"])
	if said["resident"] > said["planned"]+diskOverhead {
		t.Errorf("the process had %d bytes, the plan takes %d and the rest should be at most %d", said["resident"], said["planned"], diskOverhead)
	}
	if said["state"] < 2*said["resident"] {
		t.Errorf("a state of %d bytes shows nothing about a process of %d", said["state"], said["resident"])
	}
}

// A training run from disk that is killed at any instant goes on from its last completed
// iteration, ends with the bits of one in memory that was left alone, and leaves
// nothing behind.
func TestKilledDiskTraining(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	d := diskTraining{Model: configFile(t, deep(3, 16)), Disk: t.TempDir(), Out: t.TempDir(), Mixed: true, Iterations: 1_000_000, Every: 50}
	var reached int64
	for n := range *diskKills {
		said := d.untilKilled(t, r)
		at := max(latest(t, d.Out), held(t, d.Disk))
		if at < max(said, reached) || said > 0 && at > said+1 {
			t.Fatalf("seed %d, kill %d: the training said iteration %d, and before %d; kept is %d", seed, n, said, reached, at)
		}
		reached = at
	}
	end := reached + 5
	alone := diskTraining{Model: d.Model, Out: t.TempDir(), Iterations: end}
	d.Iterations = end
	for _, run := range []diskTraining{d, alone} {
		if _, err := run.command(t).Output(); err != nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, d.Out, alone.Out, fmt.Sprintf("step-%08d", end))
	empty(t, d.Disk)
	if names := leftIn(t, d.Out); len(names) != 1 {
		t.Errorf("left in %s: %v", filepath.Base(d.Out), names)
	}
	t.Logf("%d kills, %d iterations", *diskKills, end)
}

// held is the iteration on disk, -1 for none.
func held(t *testing.T, dir string) int64 {
	t.Helper()
	i, err := store.LastCommit(dir)
	if errors.Is(err, store.ErrNoCommit) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// untilKilled starts the training, kills it, and returns the last iteration it has
// said, 0 for none. Two kills of three wait for its first word.
func (d diskTraining) untilKilled(t *testing.T, r *rand.Rand) (said int64) {
	t.Helper()
	cmd := d.command(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Duration(r.IntN(150_000)) * time.Microsecond
	kill := func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) }
	waits := r.IntN(3) > 0
	if !waits {
		kill()
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), "iteration "); ok {
			if said, err = strconv.ParseInt(number, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if waits {
			kill()
			waits = false
		}
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the training was not killed: %v", err)
	}
	return said
}
