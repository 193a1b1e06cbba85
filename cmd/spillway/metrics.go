package main

import (
	"encoding/csv"
	"os"
	"strconv"

	"spillway/train"
)

// metrics is a log as a table, for spreadsheets and plots. The columns are called as in
// torch-optstate where they mean the same. There are no times of decoding and encoding
// states: an update reads and writes them packed, in one pass.
type metrics struct{ lines *csv.Writer }

var metricColumns = []string{"run", "step", "loss", "val_loss", "rate", "step_time_ms", "tokens_per_second", "tensor_mem_mb", "cpu_mem_mb", "gpu_mem_mb", "gpu_peak_mb", "compression_active"}

// newMetrics begins a table, or goes on with one that is there.
func newMetrics(f *os.File) (*metrics, error) {
	m := &metrics{csv.NewWriter(f)}
	if info, err := f.Stat(); err != nil || info.Size() > 0 {
		return m, err
	}
	return m, m.write(metricColumns)
}

func (m *metrics) write(line []string) error {
	if err := m.lines.Write(line); err != nil {
		return err
	}
	m.lines.Flush()
	return m.lines.Error()
}

// add writes the line of an iteration. Sizes are in millions of bytes: what the optimizer
// keeps, the process, and of the device what the plan takes and what was measured.
func (m *metrics) add(run string, r train.Report, resident int64) error {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
	size := func(n int64) string { return number(float64(n) / 1e6) }
	return m.write([]string{run, strconv.FormatInt(r.Iteration, 10), number(r.Loss), number(r.EvalLoss), number(r.LR), number(1e3 * r.SecondsPerIteration), number(r.TokensPerSecond),
		size(r.StateBytes), size(resident), size(r.PredictedBytes), size(r.MeasuredBytes), strconv.FormatBool(r.Compressed)})
}
