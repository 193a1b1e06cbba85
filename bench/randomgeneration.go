package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/rig"
)

// RandomGeneration draws n models, lengths and numbers of texts from a seed, generates with each,
// and compares forecasts and predicted memory with what was measured. Run i depends on the seed and
// on i alone.
func RandomGeneration(ctx context.Context, n int, seed uint64, o GenerationOptions) (r *GenerationReport, err error) {
	here, err := rig.Open(o.Device, o.Rig)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, here) }()
	device := here.Machine.Devices[0]
	r = &GenerationReport{Device: cmp.Or(device.Model, here.Machine.Host.CPU, device.Name), Results: []*GenerationRow{}, Notes: []string{}, Rates: device}
	r.Rates.Tables, r.Rates.Calls = nil, nil
	defer watchClock(&r.Notes)()
	o.report("reading memory")
	if r.Reads, err = readRate(here.Devices[0]); err != nil {
		return nil, err
	}
	dir, remove, err := vfs.TempDir("spillway-random")
	if err != nil {
		return nil, err
	}
	defer remove() // nothing of it is needed again
	for i := range n {
		if o.Only != "" && !slices.Contains(strings.Split(o.Only, ","), strconv.Itoa(i)) {
			continue
		}
		here.MeasureAnew()
		row, err := randomTexts(ctx, i, drawing{Rand: rand.New(rand.NewPCG(seed, uint64(i))), gpu: device.Kind == machine.GPU}, dir, here, o, r.Reads)
		if ctx.Err() != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("interrupted in run %d", i))
			break
		}
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("run %d was not measured: %v", i, err))
			continue
		}
		r.Results = append(r.Results, row)
	}
	slices.SortStableFunc(r.Results, func(a, b *GenerationRow) int {
		return cmp.Compare(math.Abs(b.Decode.Off), math.Abs(a.Decode.Off))
	})
	r.conclude()
	return r, nil
}

// randomPrompts bounds what computing the prompts of a run is forecast to take, in seconds.
const randomPrompts = 3.0

// randomTexts draws a run until one fits and is not too long to be measured, and carries it out.
func randomTexts(ctx context.Context, i int, d drawing, dir string, here *rig.Rig, o GenerationOptions, reads float64) (*GenerationRow, error) {
	for try := 1; ; try++ {
		row, err := d.texts(ctx, i, dir, here, o, reads)
		var unfit *planner.FitError
		if retry := errors.As(err, &unfit) || errors.Is(err, errUnmeasurable); !retry || try == randomTries {
			return row, err
		}
	}
}

// texts draws a model, how many texts of which length it generates, and in which memory.
func (d drawing) texts(ctx context.Context, i int, dir string, here *rig.Rig, o GenerationOptions, reads float64) (g *GenerationRow, err error) {
	a := d.architecture()
	o.Precision = one(d, dtype.BF16, dtype.BF16, dtype.F32)
	o.Key = one(d, dtype.Invalid, dtype.Invalid, quant.RowI8)
	o.Value, o.NewTokens, o.MaxMemory = o.Key, 16, ""
	o.Streams = []int64{int64(one(d, 1, 1, int(d.between(1, 17)), int(d.between(1, 65))))}
	limit := one(d, 1, d.between(0.5, 1))
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, a.config, 0o644); err != nil {
		return nil, err
	}
	m, err := openBench(path)
	if err != nil {
		return nil, err
	}
	defer m.Close() // opened for reading
	w := &generationRun{options: o, here: here, model: m, name: fmt.Sprintf("%d: %s of %d × %d", i, a.kind, a.layers, a.hidden), length: int64(a.seq) + 32, reads: reads}
	if err := w.plan(o.Streams[0]); err != nil {
		return nil, err
	}
	if limit < 1 {
		arenas := int64(limit * float64(w.job.Plan.Peak()[plan.OnDevice]))
		w.options.MaxMemory = fmt.Sprintf("%dMiB", max((arenas+w.job.Plan.Devices[0].Context)>>20, 1))
		w.name += " in " + w.options.MaxMemory
		if err := w.plan(o.Streams[0]); err != nil {
			return nil, err
		}
	}
	f, err := w.job.ForecastPrompts(o.Streams[0], w.length)
	if err != nil {
		return nil, err
	}
	if f.Seconds > randomPrompts {
		return nil, fmt.Errorf("%w: prompts of %.3g s are forecast", errUnmeasurable, f.Seconds)
	}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.job.Close()) }()
	return w.row(ctx, o.Streams[0])
}
