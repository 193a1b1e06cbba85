package finetune

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"spillway/eventlog"
)

// log appends every step of a run, as its event log has it, to a file: a JSON object per line, or a line of a table
// where the name ends in .csv.
type log struct {
	file  *os.File // nil writes nothing
	table *csv.Writer
	err   error // the first that writing gave
}

// Columns are those of the table. Where torch-optstate writes the same figure its name is used. It
// also has times of decoding and encoding optimizer state; here an update reads and writes
// packed state in one pass.
var Columns = []string{"run", "step", "loss", "val_loss", "lr", "step_time_ms", "tokens_per_second", "tensor_mem_mb", "cpu_mem_mb", "gpu_mem_mb", "gpu_peak_mb", "gpu_predicted_mb", "compression_active"}

// openLog opens a file to append to, so that a run that continues adds to what it wrote
// before. "" is no file.
func openLog(path string) (*log, error) {
	l := &log{}
	if path == "" {
		return l, nil
	}
	var err error
	if l.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	isTable := strings.HasSuffix(path, ".csv")
	err = endLastLine(l.file, isTable)
	if err == nil && isTable {
		err = l.begin()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the log: %w", err), l.file.Close())
	}
	return l, nil
}

// begin writes the columns of a table, or finds that it has them.
func (l *log) begin() error {
	l.table = csv.NewWriter(l.file)
	info, err := l.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if info.Size() == 0 {
		return l.line(Columns)
	}
	has, err := csv.NewReader(io.NewSectionReader(l.file, 0, longestLine)).Read()
	if err != nil || !slices.Equal(has, Columns) {
		return fmt.Errorf("%s is a table with other columns than %s: give another --log", l.file.Name(), strings.Join(Columns, ","))
	}
	return nil
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

// add writes a step, as the event log has it.
func (l *log) add(run string, it *eventlog.Iteration) {
	switch {
	case l.file == nil || l.err != nil:
	case l.table != nil:
		l.err = l.line(Row(run, it))
	default:
		l.err = json.NewEncoder(l.file).Encode(it)
	}
}

// Row is a step as a line of the table; what there is none of is empty. Sizes are in millions
// of bytes: the optimizer state, the process, and of the devices what was measured, now and
// at most, which is the same since memory is reserved once, and what the plan predicted.
func Row(run string, it *eventlog.Iteration) []string {
	number := func(f float64) string {
		if f == 0 {
			return ""
		}
		return strconv.FormatFloat(f, 'g', 6, 64)
	}
	size := func(n int64) string { return number(float64(n) / 1e6) }
	loss := strconv.FormatFloat(it.Loss, 'g', 6, 64)
	if it.Skipped {
		loss = number(it.Loss)
	}
	return []string{run, strconv.FormatInt(it.Step, 10), loss, number(it.EvalLoss), strconv.FormatFloat(it.LR, 'g', 6, 64), number(1e3 * it.Seconds), number(it.TokensPerSecond),
		size(it.StateBytes), size(it.Resident), size(it.MeasuredBytes), size(it.MeasuredBytes), size(it.PredictedBytes), strconv.FormatBool(it.Compressed)}
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
