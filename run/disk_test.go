package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/internal/runtest"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/train"
)

// deep is a Llama of many layers, so that few of them fit anywhere at once.
func deep(layers, width int) string {
	return fmt.Sprintf(`{"model_type": "llama", "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": 4,
		"num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}`, width, 3*width, layers)
}

// diskTraining is a short training that may use a disk.
type diskTraining struct {
	Model      string // a config.json
	Out        string // for checkpoints; "" saves nothing
	Disk       string // "" trains in memory
	DiskBudget int64
	Device     int64 // bytes; 0 for enough
	Host       int64 // the same
	Optimizer  string
	Policy     string       // on states
	Notice     func(string) `json:"-"`
	Mixed      bool         // requires a plan with homes in every tier
	Batch      int64        // sequences of an iteration, cut as the planner likes; 0 for two micro-batches of one
	Iterations int64
	Every      int64 // checkpoints
}

// run trains and gives the losses of the iterations it ran, and the plan.
func (d diskTraining) run(report func(train.Report)) (losses []float64, p *plan.Plan, err error) {
	m, err := spillway.Open(d.Model)
	if err != nil {
		return nil, nil, err
	}
	dev := cpu.Open(cpu.Options{})
	defer func() { err = errors.Join(err, dev.Close(), m.Close()) }()
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		return nil, nil, err
	}
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 1, MicroBatches: 2, Seq: 12, Packed: true, Clip: 0.5, Machine: here,
		On: []device.Device{dev}, Disk: d.Disk, DiskBudget: d.DiskBudget, Budget: d.Device}
	if d.Batch > 0 {
		o.BatchSize, o.MicroBatchSize, o.MicroBatches = d.Batch, 0, 0
	}
	if d.Host > 0 {
		o.MaxMemory = fmt.Sprintf("cpu=%d", d.Host)
	}
	if d.Mixed {
		o.Choose = everywhere
	}
	if d.Optimizer != "" {
		if o.Optimizer, err = optim.Parse(d.Optimizer); err != nil {
			return nil, nil, err
		}
	}
	if o.StatePolicy, err = optim.ParsePolicy(d.Policy); err != nil {
		return nil, nil, err
	}
	job, err := m.Plan(o)
	if err != nil {
		return nil, nil, err
	}
	l, err := data.NewLoader(runtest.Documents(40, 61), data.Config{Length: 12, Seed: 5})
	if err != nil {
		return nil, nil, err
	}
	c := train.Config{Iterations: d.Iterations, Seed: 3, Schedule: optim.Schedule{Kind: optim.Cosine, Warmup: 3, Total: 1000},
		Notice: d.Notice,
		Report: func(r train.Report) {
			losses = append(losses, r.Loss)
			if report != nil {
				report(r)
			}
		}}
	if d.Out != "" {
		c.Save = &train.Save{Dir: checkpoint.Dir{Path: d.Out, Keep: 1}, Every: d.Every}
	}
	_, err = train.Run(context.Background(), job, train.NewTokens(l), c)
	return losses, job.Plan, err
}

// everywhere puts weights and optimizer state on the device, on the host and on disk.
func everywhere(slabs, blocks int) strategy.Choice {
	c := strategy.Uniform(false, false, strategy.SaveAll, 2)(slabs, blocks)
	c.BreadthFirst, c.OnDisk = true, make([]bool, slabs)
	for i := range slabs {
		c.Streamed[i], c.OffloadedState[i], c.OnDisk[i] = i%4 > 1, i%4 > 0, i%4 == 3
	}
	return c
}

// state is what is trained and what the optimizer keeps of it, in bytes.
func state(p *plan.Plan) (bytes int64) {
	for _, b := range p.Buffers {
		if b.Home && (b.Class == plan.Weight || b.Class == plan.Master || b.Class == plan.State) {
			bytes += b.Bytes
		}
	}
	return bytes
}

// empty wants nothing in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	if names := leftIn(t, dir); len(names) > 0 {
		t.Errorf("left in %s: %v", dir, names)
	}
}

func leftIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Quantized states are durable on disk, and next to it on the tape: a training run that
// ended without a checkpoint goes on from there with the bits of one that did not.
func TestPackedStatesOnDisk(t *testing.T) {
	config, disk := configFile(t, deep(8, 48)), t.TempDir()
	for _, optimizer := range []string{"adamw_8bit:min_8bit_size=300,states_of=down_proj:bf16;norm:fp16", "adafactor_bf16:beta1=0.9"} {
		want, _, err := diskTraining{Model: config, Optimizer: optimizer, Iterations: 7}.run(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, iterations := range []int64{2, 5, 7} {
			losses, p, err := diskTraining{Model: config, Optimizer: optimizer, Disk: filepath.Join(disk, optimizer[:5]), Mixed: true, Iterations: iterations}.run(nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.Peak()[plan.OnDisk] == 0 {
				t.Fatal("nothing is stored on disk")
			}
			got = append(got, losses...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: losses %v, in memory %v", optimizer, got, want)
		}
	}
}

// A model far larger than device and host memory together is trained from disk with
// the bits of a training run in memory.
func TestTrainsFromDisk(t *testing.T) {
	config, whole, disk := configFile(t, deep(48, 64)), t.TempDir(), t.TempDir()
	resident := diskTraining{Model: config, Out: whole, Iterations: 3}
	want, _, err := resident.run(nil)
	if err != nil {
		t.Fatal(err)
	}
	tight := diskTraining{Model: config, Out: t.TempDir(), Disk: disk, Device: 1 << 20, Host: 4 << 20, Iterations: 3}
	got, p, err := tight.run(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || len(got) != 3 {
		t.Errorf("losses %v from disk, %v in memory", got, want)
	}
	sameFiles(t, tight.Out, whole, "step-00000003")
	empty(t, disk)
	bytes, peak := state(p), p.Peak()
	if bytes < 20*tight.Device || bytes < 4*tight.Host || peak[plan.OnDevice] > tight.Device || peak[plan.OnHost] > tight.Host {
		t.Errorf("the state has %d bytes, the plan takes %v", bytes, peak)
	}
	t.Logf("state %d bytes: %.1f × the device's %d, %.1f × the host's %d; %s", bytes, float64(bytes)/float64(tight.Device), tight.Device,
		float64(bytes)/float64(tight.Host), tight.Host, p.Strategy)
}

// A training whose state is in all tiers stops between two checkpoints and goes on from
// its last iteration, in a process with other memory free; a newer checkpoint wins.
func TestGoesOnFromDisk(t *testing.T) {
	config, whole := configFile(t, deep(4, 16)), t.TempDir()
	want, _, err := diskTraining{Model: config, Out: whole, Iterations: 9}.run(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := diskTraining{Model: config, Disk: t.TempDir(), Mixed: true, Iterations: 5}
	got, p, err := d.run(nil) // saves nothing: all there is is on disk
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []plan.Tier{plan.OnDevice, plan.OnHost, plan.OnDisk} {
		if p.Peak()[tier] == 0 {
			t.Fatalf("nothing is stored on the %s", tier)
		}
	}
	d.Mixed, d.Out, d.Iterations, d.Batch = false, t.TempDir(), 9, 2 // cut as the iterations on disk were
	more, _, err := d.run(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got = append(got, more...); !slices.Equal(got, want) {
		t.Errorf("losses %v from disk, %v in memory", got, want)
	}
	sameFiles(t, d.Out, whole, "step-00000009")
	empty(t, d.Disk)

	// A state of iteration 2 next to a checkpoint of 9.
	d.Mixed, d.Out, d.Iterations, d.Batch = true, "", 2, 0
	if _, _, err := d.run(nil); err != nil {
		t.Fatal(err)
	}
	d.Out, d.Iterations = whole, 9
	if again, _, err := d.run(nil); err != nil || len(again) > 0 {
		t.Errorf("%d iterations were run again: %v", len(again), err)
	}
	empty(t, d.Disk)
}

// Another training than the one on disk is refused, and so is a disk without room.
func TestDiskRefuses(t *testing.T) {
	d := diskTraining{Model: configFile(t, deep(4, 16)), Disk: t.TempDir(), Mixed: true, Iterations: 1}
	if _, _, err := d.run(nil); err != nil {
		t.Fatal(err)
	}
	other := d
	other.Model = configFile(t, deep(5, 16))
	if _, _, err := other.run(nil); err == nil || !strings.Contains(err.Error(), "holds iteration 1") || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("another model goes on from the disk: %v", err)
	}
	d.Host = 100
	if _, _, err := d.run(nil); err == nil || !strings.Contains(err.Error(), "100 B are free") {
		t.Errorf("a plan goes on in less memory than it takes: %v", err)
	}
	small := diskTraining{Model: d.Model, Disk: t.TempDir(), DiskBudget: 1000, Device: 100 << 10, Host: 100 << 10, Iterations: 1}
	var misfit *planner.FitError
	if _, _, err := small.run(nil); !errors.As(err, &misfit) {
		t.Errorf("a disk of 1000 bytes is enough: %v", err)
	}
	small.Mixed, small.DiskBudget, small.Device, small.Host = true, 200_000, 0, 0
	var space *vfs.SpaceError
	if _, _, err := small.run(nil); !errors.As(err, &space) || space.Free != 200_000 || space.Needed <= space.Free {
		t.Errorf("a disk without room for a copy of what rests elsewhere: %v", err)
	}
	empty(t, small.Disk)
}

// Weights that do not change are read where they lie: they take nothing of the disk.
func TestReadsInPlace(t *testing.T) {
	folder := filepath.Join("..", "testdata", "reference", "llama")
	m, disk := open(t, folder), t.TempDir()
	allOnDisk := func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveAll, 1)(slabs, blocks)
		c.OnDisk = slices.Repeat([]bool{true}, slabs)
		return c
	}
	for _, o := range []spillway.Options{
		{Task: spillway.Infer, Seq: 8},
		{Task: spillway.LoRA, Seq: 8, Adapters: lora.Options{Rank: 2, Alpha: 4, Targets: []string{lora.AllLinear}}},
	} {
		_, plain := start(t, m, o)
		want := fingerprint(t, plain)
		o.Disk, o.Choose = disk, allOnDisk
		job, e := start(t, m, o)
		if got := fingerprint(t, e); got != want {
			t.Errorf("%s: weights on disk differ", o.Task)
		}
		var pages int64
		if info, err := os.Stat(filepath.Join(disk, "arena-0.pages")); err == nil {
			pages = info.Size()
		}
		var fixed int64
		for _, s := range job.Plan.Slabs {
			if job.Plan.Optimizer == nil || s.Elements == 0 {
				fixed += s.WeightBytes
			}
		}
		if all := job.Plan.Peak()[plan.OnDisk]; fixed == 0 || o.Task == spillway.Infer && pages > 0 || pages > all-fixed+int64(len(job.Plan.Buffers))<<16 {
			t.Errorf("%s: %d of %d bytes never change, yet the pages have %d", o.Task, fixed, all, pages)
		}
		if err := job.Close(); err != nil {
			t.Error(err)
		}
		empty(t, disk)
	}
}
