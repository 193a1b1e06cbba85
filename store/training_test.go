package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/autograd"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/store"
	"spillway/weights"
)

// training is a tiny Llama trained by a plan, all of whose state is on disk where
// there is one.
type training struct {
	model *spec.Model
	proc  *cpu.Device
	disk  *store.Disk // nil without
	e     *executor.Executor
}

const seed = 7

// start plans and goes on from what the folder holds, or from random initial weights, which
// are iteration 0. An empty dir trains without a disk.
func start(t testing.TB, dir string) (tr *training, last int64) {
	tr = &training{model: tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 9, Task: graph.Train, Packed: true}), proc: cpu.Open(cpu.Options{Threads: 1})}
	goal, site := tiny.AdamW(2, true), tiny.Site(1<<20)
	site.Kernels = tr.proc
	choose := strategy.Uniform(false, false, strategy.SaveAll, 0)
	if dir != "" {
		site.Disk = planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
		choose = allOnDisk
	}
	p, err := planner.Build(tr.model, goal, site, choose)
	must(t, err)
	devices := []device.Device{tr.proc}
	if dir != "" {
		tr.disk, err = store.Open(store.Options{Dir: dir, Limit: 1 << 26, Regions: regions(t, p)})
		must(t, err)
		devices = append(devices, tr.disk)
		if last, err = tr.disk.Recover(); err != nil && !errors.Is(err, store.ErrNoCommit) {
			t.Fatal(err)
		}
	}
	tr.e, err = executor.New(p, devices)
	must(t, err)
	must(t, tr.e.WriteConstants())
	if dir == "" || last < 0 {
		must(t, tr.begin(0), tr.load(), tr.commit(0))
		last = 0
	}
	return tr, last
}

// allOnDisk streams all weights and all optimizer state from disk.
func allOnDisk(slabs, blocks int) strategy.Choice {
	c := strategy.Uniform(true, true, strategy.SaveAll, 1)(slabs, blocks)
	c.OnDisk = slices.Repeat([]bool{true}, slabs)
	return c
}

// regions of a plan's disk: what lives from iteration to iteration is journaled, except
// gradients, which every iteration makes anew.
func regions(t testing.TB, p *plan.Plan) (list []store.Region) {
	for id, b := range p.Buffers {
		if p.TierOf(id) != plan.OnDisk {
			continue
		}
		if !b.Home {
			t.Fatalf("%s is on disk and no home", b.Name)
		}
		kind := store.Journaled
		if b.Class == plan.Gradient {
			kind = store.Scratch
		}
		list = append(list, store.Region{Kind: kind, Offset: b.Offset, Bytes: b.Bytes})
	}
	if len(list) == 0 {
		t.Fatal("nothing is on disk")
	}
	return list
}

func (tr *training) begin(i int64) error {
	if tr.disk == nil {
		return nil
	}
	return tr.disk.Begin(i)
}

func (tr *training) commit(i int64) error {
	if tr.disk == nil {
		return nil
	}
	return tr.disk.Commit(i)
}

func (tr *training) load() error {
	fresh, err := weights.Random(tr.model.Params, seed)
	if err != nil {
		return err
	}
	return weights.Load(tr.e, fresh)
}

// step carries out one iteration.
func (tr *training) step(i int64) error {
	if err := errors.Join(tr.fill(i), tr.begin(i)); err != nil {
		return err
	}
	n := executor.IterationArgs{Seed: seed, Iteration: uint64(i), MaxNorm: 0.5}
	adamw := optim.AdamStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decoupled: true,
		Bias1: float32(1 - math.Pow(0.9, float64(i))), Bias2: float32(math.Sqrt(1 - math.Pow(0.999, float64(i))))}
	n.Optimizer = adamw.Scalars()
	adamw.Decay = 0
	n.NoDecay = adamw.Scalars()
	if err := tr.e.Iterate(context.Background(), n); err != nil {
		return err
	}
	return tr.commit(i)
}

// fill makes the batch of an iteration from its number alone.
func (tr *training) fill(iteration int64) error {
	p := tr.e.Plan()
	for micro := range p.MicroBatches {
		rng := rand.New(rand.NewPCG(uint64(iteration), uint64(micro)))
		for _, part := range p.Batch {
			raw, err := tr.e.BatchTensor(micro, part.Name)
			if err != nil {
				return err
			}
			for i := range len(raw) / 4 {
				bits := uint32(i) % uint32(part.Type.Shape.Last()) // positions
				switch part.Name {
				case "tokens", "targets":
					bits = rng.Uint32N(50)
				case "segments":
					bits /= 5
				case "scale":
					bits = math.Float32bits(1.0 / 36)
				case autograd.LossScale:
					bits = math.Float32bits(1)
				}
				binary.LittleEndian.PutUint32(raw[4*i:], bits)
			}
		}
	}
	return nil
}

// sum of all weights and optimizer state, by name.
func (tr *training) sum(t testing.TB) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	for _, tensor := range append(tr.e.Weights(), tr.e.States()...) {
		h := sha256.New()
		must(t, tr.e.Read(tensor, func(_ int64, chunk []byte) error { h.Write(chunk); return nil }))
		sums[tensor.Param.Name+" "+tensor.State] = [32]byte(h.Sum(nil))
	}
	return sums
}

func (tr *training) close(t testing.TB) {
	t.Helper()
	must(t, tr.e.Close())
	if tr.disk != nil {
		must(t, tr.disk.Close())
	}
	must(t, tr.proc.Close())
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// compare wants the training's state to be that of another at the same iteration.
func (tr *training) compare(t *testing.T, iteration int64, other *training) {
	t.Helper()
	want := other.sum(t)
	for name, sum := range tr.sum(t) {
		if sum != want[name] {
			t.Fatalf("after iteration %d %s differs", iteration, name)
		}
	}
}

// Training from disk gives the bits of training in memory. An iteration that was not
// committed, because it failed or because the process ended, can be run again.
func TestTrainingFromDisk(t *testing.T) {
	resident, _ := start(t, "")
	dir := t.TempDir()
	at := int64(0)
	for range 3 {
		tr, last := start(t, dir)
		if last != at {
			t.Fatalf("the disk holds iteration %d, want %d", last, at)
		}
		for range 2 {
			at++
			must(t, resident.step(at), tr.step(at))
			if a, b := tr.e.Loss(), resident.e.Loss(); a != b {
				t.Fatalf("iteration %d: loss %v from disk, %v in memory", at, a, b)
			}
			tr.compare(t, at, resident)
		}
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		must(t, tr.begin(at+1))
		if tr.e.Iterate(cancelled, executor.IterationArgs{}) == nil {
			t.Fatal("a cancelled iteration succeeded")
		}
		must(t, tr.disk.Rollback())
		tr.compare(t, at, resident)
		must(t, tr.begin(at+1), tr.fill(at+1), tr.e.Iterate(context.Background(), executor.IterationArgs{MaxNorm: 1}))
		tr.close(t) // without a commit
	}
	resident.close(t)
}

// trainingDir, where set, makes TestTrainingChild the process that is killed.
const trainingDir = "SPILLWAY_TEST_TRAINING_DIR"

func TestTrainingChild(t *testing.T) {
	dir := os.Getenv(trainingDir)
	if dir == "" {
		t.Skip("this is the process that TestKilledTraining kills")
	}
	tr, last := start(t, dir)
	for {
		fmt.Println("committed", last)
		must(t, tr.step(last+1))
		last++
	}
}

// A training run from disk, killed at random instants, is always found at its last
// completed iteration with the bits of one that ran in memory and was left alone.
func TestKilledTraining(t *testing.T) {
	kills, err := strconv.Atoi(flag.Lookup("kills").Value.String())
	must(t, err)
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	resident, at := start(t, "")
	for range kills {
		said := untilKilled(t, dir, rng)
		tr, last := start(t, dir)
		if last < max(said, at) || said >= 0 && last > said+1 {
			t.Fatalf("iteration %d was said to be committed, the disk holds %d", said, last)
		}
		for at < last {
			at++
			must(t, resident.step(at))
		}
		tr.compare(t, at, resident)
		tr.close(t)
	}
	resident.close(t)
	names, err := os.ReadDir(dir)
	if must(t, err); len(names) != 2 {
		t.Errorf("left are %v, want the pages and the manifest", names)
	}
	t.Logf("%d kills, %d iterations", kills, at)
}

// untilKilled starts the child, kills it and returns the last iteration it has said,
// -1 for none. Two kills of three wait for its first word.
func untilKilled(t *testing.T, dir string, rng *rand.Rand) (said int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTrainingChild$")
	cmd.Env = append(os.Environ(), trainingDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	after := time.Duration(rng.IntN(100_000)) * time.Microsecond
	kill := func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) }
	waits := rng.IntN(3) > 0
	if !waits {
		kill()
	}
	said = -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if word, ok := strings.CutPrefix(lines.Text(), "committed "); ok {
			said, err = strconv.ParseInt(word, 10, 64)
			must(t, err)
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
