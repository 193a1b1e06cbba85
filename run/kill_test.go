package run_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/internal/runtest"
	"spillway/machine"
	"spillway/optim"
	"spillway/train"
)

var kills = flag.Int("kills", 5, "how often TestKilledRunsGoOn kills its training")

// childJob in the environment makes this binary a process that trains: "folder of
// the model, folder of checkpoints, iterations, number of the strategy".
const childJob = "SPILLWAY_TEST_TRAINING"

// children are what this binary does instead of testing where the environment asks for
// it: the job is what the variable says.
var children = map[string]func(job string) error{childJob: child, diskChildJob: diskChild, groupChildJob: groupChild}

func TestMain(m *testing.M) {
	for name, run := range children {
		job := os.Getenv(name)
		if job == "" {
			continue
		}
		if err := run(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child trains a model to an iteration, saving every other one.
func child(job string) error {
	args := strings.Split(job, "\n")
	iterations, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	strategy, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	m, err := spillway.Open(args[0])
	if err != nil {
		return err
	}
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		return err
	}
	l, err := data.NewLoader(runtest.Documents(40, 61), data.Config{Length: 12, Seed: 5})
	if err != nil {
		return err
	}
	dev := cpu.Open(cpu.Options{})
	names := slices.Sorted(maps.Keys(strategies))
	planned, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: 2, MicroBatches: 2, Seq: 12, Packed: true, Clip: 0.5,
		Machine: here, On: []device.Device{dev}, Choose: strategies[names[strategy%len(names)]]})
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), planned, train.NewTokens(l), train.Config{
		Iterations: iterations, Seed: 3, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 3, Total: 1000},
		Save: &train.Save{Dir: checkpoint.Dir{Path: args[1], Keep: 2}, Every: 2},
	})
	return errors.Join(err, dev.Close(), m.Close())
}

func startChild(t *testing.T, model, dir string, iterations int64, strategy int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childJob+"="+strings.Join([]string{model, dir, fmt.Sprint(iterations), fmt.Sprint(strategy)}, "\n"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A training run that is killed at any moment and goes on, each time under another
// strategy, ends with the bits of one that was left alone.
func TestKilledRunsGoOn(t *testing.T) {
	model, dir := configFile(t, tinyGPT2), t.TempDir()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var reached int64
	const usual = 230 // milliseconds a process lives; longer after one that got nowhere
	window := usual
	for n := 0; n < *kills || reached == 0; n++ {
		cmd := startChild(t, model, dir, 1_000_000, n)
		time.Sleep(time.Duration(20+r.IntN(window)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("seed %d, kill %d: the training had ended by itself: %v", seed, n, err)
		}
		at := latest(t, dir)
		if at < reached {
			t.Fatalf("seed %d, kill %d: iteration %d is the latest, %d was before", seed, n, at, reached)
		}
		window *= 2
		if at > reached {
			reached, window = at, usual
		}
	}
	alone := t.TempDir()
	for _, where := range []string{dir, alone} {
		if err := startChild(t, model, where, reached+5, *kills).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d iterations", *kills, reached+5)
	sameFiles(t, dir, alone, fmt.Sprintf("step-%08d", reached+5))
}

// latest is the iteration of the newest checkpoint, which must be whole.
func latest(t *testing.T, dir string) int64 {
	t.Helper()
	c, err := checkpoint.Dir{Path: dir}.Latest()
	if errors.Is(err, checkpoint.ErrNone) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Skipped) > 0 {
		t.Errorf("damaged checkpoints: %v", c.Skipped)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return c.Iteration
}

// sameFiles compares what two checkpoints of one name hold.
func sameFiles(t *testing.T, a, b, name string) {
	t.Helper()
	for _, file := range []string{"model.safetensors", checkpoint.StateName, checkpoint.TrainerName, "config.json"} {
		x, err := os.ReadFile(filepath.Join(a, name, file))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name, file))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x, y) {
			t.Errorf("%s of the killed run differs from the one left alone", file)
		}
	}
}
