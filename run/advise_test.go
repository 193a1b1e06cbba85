package run_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/dtype"
	"spillway/placement"
	"spillway/plan"
	"spillway/planner"
	"spillway/train"
)

// rests tells where the plan has the weights of each block: "0", "1", "cpu".
func rests(job *spillway.Run) map[string]string {
	at := map[string]string{}
	for _, s := range job.Plan.Slabs {
		a := job.Plan.Arenas[job.Plan.Buffers[s.Weight].Arena]
		at[s.Name] = map[bool]string{true: string(rune('0' + a.Device)), false: "cpu"}[a.Tier == plan.OnDevice]
	}
	return at
}

func deviceMap(t *testing.T, text string) *placement.Map {
	t.Helper()
	m, err := placement.ParseMap(text)
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

// A training placed by the user, on two devices and the host, gives the numbers of
// the one the planner places.
func TestDeviceMapTrains(t *testing.T) {
	const seq = 12
	two := []device.Device{openDevice(t), openDevice(t)}
	losses := map[string][]float64{}
	for name, text := range map[string]string{
		"planner": "", "device 0": `{"": 0}`, "host": `{"": "cpu"}`,
		"all over": `{"model.embed_tokens": 1, "model.layers.0": 0, "model.layers.1": "cpu", "model.layers.2": 1, "model.norm": 1, "lm_head": 1}`,
	} {
		o := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, Seq: seq, Packed: true, Clip: 0.5, On: two, Machine: parse(t, "2xcpu:1GiB,host:4GiB")}
		if text != "" {
			o.DeviceMap = deviceMap(t, text)
		}
		job, err := open(t, configFile(t, tinyLlama(false, 0))).Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := job.Start(); err != nil {
			t.Fatal(err)
		}
		defer job.Close() // before the devices; leaks show there
		at := rests(job)
		if name == "all over" && (at["model.embed_tokens"] != "1" || at["model.layers.0"] != "0" || at["model.layers.1"] != "cpu" || at["model.layers.2"] != "1") {
			t.Errorf("%s: %v", name, at)
		}
		if name == "host" && (at["model.embed_tokens"] != "cpu" || at["lm_head"] != "cpu") {
			t.Errorf("%s: %v", name, at)
		}
		run, err := train.New(job, packedFeed(t, seq), train.Config{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			r, err := run.Step()
			if err != nil {
				t.Fatal(err)
			}
			losses[name] = append(losses[name], r.Loss)
		}
	}
	for name, list := range losses {
		for i := range list {
			if math.Float64bits(list[i]) != math.Float64bits(losses["planner"][i]) {
				t.Errorf("%s: the loss of iteration %d is %v, as the planner places it %v", name, i+1, list[i], losses["planner"][i])
			}
		}
	}
}

// The words leave room for what is not weights: a plan comes of it where filling
// the device with weights would leave none.
func TestAutoLeavesRoomForActivations(t *testing.T) {
	m := open(t, "llama-3.2-1b")
	o := spillway.Options{Task: spillway.Infer, MicroBatchSize: 2, Seq: 2048, Precision: dtype.BF16, Machine: parse(t, "gpu:3584MiB@25GB/s,host:32GiB"), DeviceMap: deviceMap(t, "auto"), AllLogits: true}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	at := rests(job)
	if at["model.embed_tokens"] != "0" || at["model.layers.15"] != "cpu" {
		t.Errorf("%v", at)
	}
	free := o
	free.DeviceMap = nil
	best, err := m.Plan(free)
	if err != nil {
		t.Fatal(err)
	}
	if best.Plan.Forecast.StepSeconds > job.Plan.Forecast.StepSeconds*1.0001 {
		t.Errorf("placed by rule it takes %g s, by the planner %g s", job.Plan.Forecast.StepSeconds, best.Plan.Forecast.StepSeconds)
	}
}

func TestMaxMemory(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(false, 0)))
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 1, Seq: 16, Machine: parse(t, "2xcpu:1GiB,host:1GiB")}
	o.MaxMemory = "0=150KiB,1=100KiB,cpu=2MiB"
	o.DeviceMap = deviceMap(t, `{"": 0, "lm_head": 1, "model.norm": 1}`)
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range job.Plan.Arenas {
		if most := map[string]int64{"cpu0": 150 << 10, "cpu1": 100 << 10, "host": 2 << 20}[a.Name]; a.Bytes > most {
			t.Errorf("%s takes %d bytes, %d are allowed", a.Name, a.Bytes, most)
		}
	}
	o.DeviceMap, o.MaxMemory = nil, "1=64KiB"
	if _, err := m.Plan(o); err == nil || !strings.Contains(err.Error(), "from 0 on") {
		t.Errorf("only device 1: %v", err)
	}
	o.MaxMemory = "0=200KiB"
	if job, err = m.Plan(o); err != nil || len(job.Plan.Devices) != 1 || job.Plan.Arenas[0].Bytes > 200<<10 {
		t.Errorf("only device 0: %v", err)
	}
}

// The settings of savings are those of the options, changed one by one.
func TestSavingsOfAModel(t *testing.T) {
	m := open(t, "llama-3.2-1b")
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 4, Seq: 512, Machine: parse(t, "gpu:24GiB@25GB/s,host:64GiB")}
	base, savings, err := m.Savings(o)
	if err != nil {
		t.Fatal(err)
	}
	standard, err := m.Standard(o)
	if err != nil || base.Device != standard.Plan.Peak()[plan.OnDevice] {
		t.Errorf("savings begin with %d bytes, the standard plan takes %v (%v)", base.Device, standard.Plan.Peak(), err)
	}
	const layers = 973_078_528 // params of the 16 layers' linear weights
	params := standard.Spec.Count()
	for _, r := range savings {
		switch {
		case r.Name == "LoRA of rank 16" && r.Saves < 8*params:
			t.Errorf("LoRA saves %d bytes; the moments of all weights alone are %d", r.Saves, 8*params)
		case strings.HasPrefix(r.Name, "QLoRA") && r.Saves < 8*params+3*layers:
			t.Errorf("QLoRA saves %d bytes; moments are %d, and %d params in layers lose 7 of 8 bits", r.Saves, 8*params, layers)
		case r.Skipped == "" && r.Alone.Device == 0:
			t.Errorf("%+v", r)
		}
	}
}

// Batches found by planning are planned for, and one more is not.
func TestLargestBatchOfAModel(t *testing.T) {
	m := open(t, "gpt2")
	o := spillway.Options{Task: spillway.Train, Seq: 512, Precision: dtype.BF16, Machine: parse(t, "gpu:8GiB@25GB/s,host:8GiB")}
	job, next, err := m.LargestBatch(o, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if next == nil || job.Options.MicroBatchSize < 8 || job.Plan.MicroBatchSize != job.Options.MicroBatchSize {
		t.Errorf("%d rows, next %v", job.Options.MicroBatchSize, next)
	}
	fast, _, err := m.FastestBatch(o, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if fast.Plan.Forecast.TokensPerSec < job.Plan.Forecast.TokensPerSec*0.99 {
		t.Errorf("%d rows have %.0f tokens/s, the largest batch %d has %.0f", fast.Options.MicroBatchSize, fast.Plan.Forecast.TokensPerSec, job.Options.MicroBatchSize, job.Plan.Forecast.TokensPerSec)
	}
}

// What is found to fit without looking for a fast plan is what a plan is found for, whatever the machine and the batch.
func TestFitsWhereAPlanDoes(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(false, 0)))
	fit, refused := 0, 0
	for _, budget := range []int64{10_000, 40_000, 100_000, 400_000} {
		for _, host := range []string{"64KiB", "256KiB", "4GiB"} {
			for _, parts := range []string{"gpu:1GiB,", "2xgpu:1GiB,", "gpu:1GiB,disk:300KiB,"} {
				for _, task := range []spillway.Task{spillway.Train, spillway.Infer} {
					o := spillway.Options{Task: task, BatchSize: 4, Seq: 32, Machine: parse(t, parts+"host:4GiB@usable="+host), Budget: budget}
					_, err := m.TryPlan(o)
					f, alone := m.Fits(o)
					if err != nil && !errors.As(err, new(*planner.FitError)) {
						t.Fatal(err)
					}
					switch {
					case (err == nil) != (alone == nil):
						t.Errorf("%s on %sdevices with %d bytes, %s on the host: %v, and looking for any plan %v", task, parts, budget, host, err, alone)
					case err != nil:
						refused++
					default:
						fit++
						if f.Device != budget || f.Peak[plan.OnDevice] > 2*budget || f.Peak[plan.OnDevice] == 0 {
							t.Errorf("%s on %sdevices with %d bytes: %+v", task, parts, budget, f)
						}
					}
				}
			}
		}
	}
	if fit < 15 || refused < 15 {
		t.Errorf("%d fit, %d do not: the machines are too much alike", fit, refused)
	}
}
