package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"spillway"
	"spillway/dtype"
	"spillway/lora"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
)

// The axes of the page.
var (
	sizes   = []int{8, 16, 24, 48, 80, 141} // GiB of a GPU
	counts  = []int{1, 2, 4, 8}
	tasks   = []spillway.Task{spillway.Infer, spillway.Train, spillway.LoRA}
	samples = 8 // of an iteration, one at a time, so that 8 devices have one each
)

// rest of the machine: GPUs as machine.Parse assumes them, on PCIe, in a server.
const rest = "@25GB/s,host:1TiB,disk:8TiB@6GB/s"

// usualSeq is the length of samples, where the model can take it.
const usualSeq = 2048

// table is a shape with all its cells.
type table struct {
	name   string
	params int64
	shape  string // all that plans depend on: what is computed and what is stored
	model  *spillway.Model
	cells  []cell
	byRule sync.Map // what was planned by the rule, by ruleKey
}

// cell is one use on one machine.
type cell struct {
	GiB, Devices int
	Task         spillway.Task

	Strategy string // names of strategies; "" where nothing fits
	Needs    string // what the smallest plan lacks
	Seconds  float64
	Theirs   outcome
}

func newTable(name string) (*table, error) {
	m, err := spillway.Open(name)
	if err != nil {
		return nil, err
	}
	t := &table{name: name, model: m}
	for _, gib := range sizes {
		for _, n := range counts {
			for _, task := range tasks {
				t.cells = append(t.cells, cell{GiB: gib, Devices: n, Task: task})
			}
		}
	}
	job, err := m.Standard(t.options(t.cells[0]))
	if err != nil {
		return nil, err
	}
	t.params = job.Spec.Count()
	for _, p := range job.Spec.Params {
		t.shape += fmt.Sprintln(p.Type)
	}
	for i := range job.Spec.Blocks {
		t.shape += fmt.Sprintln(job.Spec.Program(i).Cost())
	}
	return t, nil
}

// options of a cell. The description parses, since it is made here.
func (t *table) options(c cell) spillway.Options {
	mach, err := machine.Parse(fmt.Sprintf("%dxgpu:%dGiB%s", c.Devices, c.GiB, rest))
	if err != nil {
		panic(err)
	}
	o := spillway.Options{Task: c.Task, MicroBatchSize: 1, MicroBatches: samples, Seq: min(usualSeq, max(t.model.Info.Context, 1)), Precision: dtype.BF16, Machine: mach, AllLogits: c.Task == spillway.Infer}
	if c.Task == spillway.LoRA {
		o.Adapters = lora.Options{Targets: []string{lora.AllLinear}, Rank: 16, Alpha: 32}
	}
	return o
}

// work is the plans of a table: one piece for each task and number of GPUs.
func (t *table) work(cache string) (list []func() error) {
	for _, task := range tasks {
		for _, n := range counts {
			list = append(list, func() error {
				if cache == "" {
					return t.planSizes(task, n)
				}
				return t.cached(filepath.Join(cache, fmt.Sprintf("%s-%s-%d.json", t.name, task, n)), task, n)
			})
		}
	}
	return list
}

// kept plans a piece, or reads what came of it before.
func (t *table) cached(path string, task spillway.Task, devices int) error {
	var mine []*cell
	for i := range t.cells {
		if c := &t.cells[i]; c.Task == task && c.Devices == devices {
			mine = append(mine, c)
		}
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		return json.Unmarshal(raw, &mine)
	}
	if err = t.planSizes(task, devices); err != nil {
		return err
	}
	if raw, err = json.Marshal(mine); err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}

// planSizes fills the cells of all sizes of GPU, from the largest on. A plan that is
// fastest on large GPUs and fits smaller ones is fastest there too.
func (t *table) planSizes(task spillway.Task, devices int) error {
	var last *spillway.Run
	for i := len(t.cells) - 1; i >= 0; i-- {
		c := &t.cells[i]
		if c.Task != task || c.Devices != devices {
			continue
		}
		if last != nil && peak(last) <= int64(t.options(*c).Machine.Devices[0].Usable) {
			c.set(last)
		} else if job, err := t.plan(c); err != nil {
			return err
		} else {
			last = job
		}
		var err error
		if c.Theirs, err = t.rule(*c); err != nil {
			return err
		}
	}
	return nil
}

// plan fills what a cell says of the planner's choice; the job is nil where nothing
// fits.
func (t *table) plan(c *cell) (*spillway.Run, error) {
	job, err := t.model.Plan(t.options(*c))
	var misfit *planner.FitError
	if errors.As(err, &misfit) {
		c.Needs = string(misfit.Tier)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s on %d × %d GiB: %w", t.name, c.Task, c.Devices, c.GiB, err)
	}
	c.set(job)
	return job, nil
}

func (c *cell) set(job *spillway.Run) {
	c.Strategy, c.Seconds = strings.Join(job.Plan.Strategies, " + "), job.Plan.Forecast.StepSeconds
}

// peak is what a job takes of the device that holds most.
func peak(job *spillway.Run) (most int64) {
	for _, a := range job.Plan.Arenas {
		if a.Tier == plan.OnDevice {
			most = max(most, a.Bytes)
		}
	}
	return most
}
