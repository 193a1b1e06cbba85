package finetune

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"spillway/train"
)

// log appends every report of a run to a file: a JSON object per line, or a line of a table
// where the name ends in .csv.
type log struct {
	file  *os.File // nil writes nothing
	table *csv.Writer
	run   string
	err   error // the first that writing gave
}

// Columns are those of the table. Where torch-optstate writes the same figure its name is used. It
// also has times of decoding and encoding optimizer state; here an update reads and writes
// packed state in one pass.
var Columns = []string{"run", "step", "loss", "val_loss", "lr", "step_time_ms", "tokens_per_second", "tensor_mem_mb", "cpu_mem_mb", "gpu_mem_mb", "gpu_peak_mb", "compression_active"}

// openLog opens a file to append to, so that a run that continues adds to what it wrote
// before. "" is no file.
func openLog(path, run string) (*log, error) {
	l := &log{run: run}
	if path == "" {
		return l, nil
	}
	var err error
	if l.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	isTable := strings.HasSuffix(path, ".csv")
	if err := endLastLine(l.file, isTable); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the log: %w", err), l.file.Close())
	}
	if !isTable {
		return l, nil
	}
	l.table = csv.NewWriter(l.file)
	info, err := l.file.Stat()
	if err == nil && info.Size() == 0 {
		err = l.line(Columns)
	}
	l.err = err
	return l, nil
}

// endLastLine ends the last line of a file, which has no end where a run was killed: it is
// removed if it is half of one.
func endLastLine(f *os.File, isTable bool) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return err
	}
	end := make([]byte, min(info.Size(), longestLine))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return err
	}
	last := end[bytes.LastIndexByte(end, '\n')+1:]
	whole := json.Valid(last)
	if isTable {
		whole = bytes.HasSuffix(last, []byte(",true")) || bytes.HasSuffix(last, []byte(",false"))
	}
	if len(last) == 0 {
		return nil
	}
	if !whole && len(last) < longestLine {
		return f.Truncate(info.Size() - int64(len(last)))
	}
	_, err = f.WriteString("\n")
	return err
}

// longestLine is above what a line of a log has, in bytes.
const longestLine = 64 << 10

// add writes what a step reports; resident is the memory of the process, in bytes.
func (l *log) add(r train.Report, resident int64) {
	switch {
	case l.file == nil || l.err != nil:
	case l.table != nil:
		l.err = l.line(row(l.run, r, resident))
	default:
		l.err = json.NewEncoder(l.file).Encode(r)
	}
}

// row is a step as a line of the table. Sizes are in millions of bytes: the optimizer state,
// the process, and of the device what the plan uses and what was measured.
func row(run string, r train.Report, resident int64) []string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
	size := func(n int64) string { return number(float64(n) / 1e6) }
	return []string{run, strconv.FormatInt(r.Iteration, 10), number(r.Loss), number(r.EvalLoss), number(r.LR), number(1e3 * r.SecondsPerIteration), number(r.TokensPerSecond),
		size(r.StateBytes), size(resident), size(r.PredictedBytes), size(r.MeasuredBytes), strconv.FormatBool(r.Compressed)}
}

func (l *log) line(cells []string) error {
	if err := l.table.Write(cells); err != nil {
		return err
	}
	l.table.Flush()
	return l.table.Error()
}

func (l *log) close() error {
	if l.file == nil {
		return nil
	}
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}
