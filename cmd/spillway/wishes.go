package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/deepspeed"
	"spillway/dtype"
	"spillway/placement"
	"spillway/planner"
)

// wishes are what a plan must do, whether or not it is fastest.
type constraintFlags struct {
	deepspeed string
	deviceMap string
	maxMemory string
	updates   string
	given     func(flag string) bool
}

func addConstraintFlags(cmd *cobra.Command) *constraintFlags {
	w := &constraintFlags{given: func(flag string) bool {
		return cmd.Flags().Changed(flag) || flag == "optimizer" && cmd.Flags().Changed("optim")
	}}
	f := cmd.Flags()
	f.StringVar(&w.deepspeed, "deepspeed", "", "take batch sizes, precision, optimizer, schedule and offloading from DeepSpeed's JSON in `FILE`")
	f.StringVar(&w.deviceMap, "device-map", "", "where weights rest: `auto|balanced|balanced_low_0|sequential`, or module names with device numbers,\ncpu or disk as a JSON object or in a file: {\"model.layers\": 0, \"\": \"cpu\"} (default: what is fastest)")
	f.StringVar(&w.maxMemory, "max-memory", "", "take at most `SIZE` of each device, such as 2GiB or gpu=2GiB, or of each its own: 0=10GiB,cpu=64GB (default: all)")
	f.StringVar(&w.updates, "optimizer-place", "", "who updates the weights: `device|cpu|split`; cpu: the CPU, during the backward, where optimizer state\nis stored in host memory (default: what is fastest)")
	return w
}

// apply changes a goal and its options to what is wished. The notices are about
// what was wished and means nothing, or is done otherwise.
func (w *constraintFlags) apply(g *goal, o *spillway.Options) (c *deepspeed.Config, notices []string, err error) {
	here := placement.Memory{Devices: map[int]int64{}}
	for d := range max(len(o.On), len(o.Machine.Devices)) {
		here.Devices[d] = math.MaxInt64
	}
	if o.MaxMemory = w.maxMemory; w.maxMemory != "" {
		if here, err = placement.ParseMemory(w.maxMemory, here); err != nil {
			return nil, nil, usageError{err}
		}
	}
	if w.deviceMap != "" {
		m, err := w.readMap()
		if err != nil {
			return nil, nil, err
		}
		o.DeviceMap = &m
	}
	if w.deepspeed != "" {
		c, notices, err = w.readDeepSpeed(g, o, len(here.Devices))
	}
	o.Constraints.Updates = planner.Updater(w.updates)
	return c, notices, err
}

// disk is the folder of --disk, or the one that DeepSpeed's file names.
func (w *constraintFlags) disk(given string) (string, error) {
	if given != "" || w.deepspeed == "" {
		return given, nil
	}
	text, err := os.ReadFile(w.deepspeed)
	if err != nil {
		return "", fmt.Errorf("reading DeepSpeed's configuration: %w", err)
	}
	path, err := deepspeed.DiskPath(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.deepspeed, err)
	}
	return path, nil
}

// readMap takes the map from the flag, or from the file it names.
func (w *constraintFlags) readMap() (placement.Map, error) {
	text := w.deviceMap
	if !slices.Contains(placement.Words, text) && !strings.HasPrefix(strings.TrimSpace(text), "{") {
		raw, err := os.ReadFile(text)
		if errors.Is(err, fs.ErrNotExist) {
			return placement.Map{}, usageErrorf("--device-map %q is neither %s, a JSON object nor a file", text, strings.Join(placement.Words, ", "))
		}
		if err != nil {
			return placement.Map{}, fmt.Errorf("reading the device map: %w", err)
		}
		text = string(raw)
	}
	m, err := placement.ParseMap(text)
	if err != nil {
		return m, usageError{err}
	}
	return m, nil
}

func (w *constraintFlags) readDeepSpeed(g *goal, o *spillway.Options, devices int) (*deepspeed.Config, []string, error) {
	text, err := os.ReadFile(w.deepspeed)
	if err != nil {
		return nil, nil, fmt.Errorf("reading DeepSpeed's configuration: %w", err)
	}
	c, list, err := deepspeed.Parse(text, devices)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", w.deepspeed, err)
	}
	var notices []string
	for _, n := range list {
		notices = append(notices, n.String())
	}
	return &c, notices, w.fill(&c, g, o)
}

// fill puts what the file says in the place of flags that were not given.
func (w *constraintFlags) fill(c *deepspeed.Config, g *goal, o *spillway.Options) error {
	for flag, said := range map[string]bool{
		"batch": c.MicroBatchSize > 0, "accumulate": c.MicroBatches > 0, "precision": c.Precision != dtype.Invalid,
		"optimizer": c.Optimizer != nil, "clip": c.Clip > 0, "lr": c.LearningRate > 0, "schedule": c.Schedule != nil, "warmup": c.Schedule != nil,
	} {
		if said && w.given(flag) {
			return usageErrorf("--%s is given, and %s says it too; keep one", flag, w.deepspeed)
		}
	}
	if c.MicroBatchSize > 0 {
		o.MicroBatchSize = c.MicroBatchSize
	}
	if c.MicroBatches > 0 {
		o.MicroBatches = c.MicroBatches
	}
	if c.Precision != dtype.Invalid {
		o.Precision = c.Precision
	}
	if c.Optimizer != nil {
		g.optim, o.Optimizer = *c.Optimizer, *c.Optimizer
	}
	if c.Clip > 0 {
		g.clip, o.Clip = c.Clip, c.Clip
	}
	o.Constraints = c.Constraints()
	return nil
}

// batchSize is the flag --batch: a number, or auto.
type batchSize struct {
	rows *int64
	auto *bool
}

func (b batchSize) String() string {
	if b.rows == nil {
		return "1"
	}
	return strconv.FormatInt(*b.rows, 10)
}

func (b batchSize) Set(text string) error {
	if *b.auto = text == "auto"; *b.auto {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is neither a number nor auto", text)
	}
	*b.rows = n
	return nil
}

func (b batchSize) Type() string { return "N" }

// mostRows bounds the search for a micro-batch.
const maxMicroBatchSize = 1 << 12

// planned is the plan of the options, or with --batch auto the one of the fastest
// micro-batch.
func (g *goal) planned(m *spillway.Model, o spillway.Options) (*spillway.Job, error) {
	if !g.auto {
		return m.Plan(o)
	}
	job, _, err := m.FastestBatch(o, maxMicroBatchSize)
	return job, err
}
