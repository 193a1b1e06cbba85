package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Log is what a run's event log has so far.
type Log struct {
	Path        string
	Starts      []Start
	Settings    []Setting // the latest
	Machine     json.RawMessage
	Plans       []PlanAt
	Traces      []TraceAt
	Iterations  []Iteration // by step: what was done again after a kill counts once
	Generations []Generation
	Profiles    []Profile
	Alerts      []Alert
	Checkpoints []Checkpoint
	Samples     []Sample
	End         *End // of the latest process; nil while it runs, or where it was killed
	// Damaged is where the log ends for a reader though more follows; nil for a sound one.
	Damaged error

	reader *Reader
}

// PlanAt is a plan of the log that is read when it is asked for.
type PlanAt struct {
	Step int64 // steps done before; a guess from the records around it until it is read
	at   int64
}

// TraceAt is a trace of the log that is read when it is asked for.
type TraceAt struct {
	Step     int64
	Forecast bool
	Phase    string // of the plan; "" is its main instructions
	at       int64
}

// PathOf is the event log that a user means: a file, or the folder of a run.
func PathOf(run string) string {
	if info, err := os.Stat(run); err == nil && info.IsDir() {
		return filepath.Join(run, FileName)
	}
	return run
}

// Follow opens a log and reads what is there. Update reads what came since. The caller
// closes it.
func Follow(path string) (*Log, error) {
	r, err := OpenReader(path)
	if err != nil {
		return nil, err
	}
	l := &Log{Path: path, reader: r}
	if _, err := l.Update(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return l, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.reader.Close() }

// Update reads what was written since, and says whether there was anything. Damage ends
// the log and is no error: it is in Damaged.
func (l *Log) Update() (changed bool, err error) {
	for l.Damaged == nil {
		at := l.reader.At()
		kind, payload, err := l.reader.Next()
		var damaged *DamagedError
		switch {
		case errors.Is(err, io.EOF):
			return changed, nil
		case errors.As(err, &damaged):
			l.Damaged = err
			return true, nil
		case err != nil:
			return changed, err
		}
		changed = true
		if err := l.take(kind, payload, at); err != nil {
			l.Damaged = fmt.Errorf("%s: the record at byte %d is not as expected: %w", l.Path, at, err)
		}
	}
	return changed, nil
}

// take adds a record.
func (l *Log) take(kind Kind, payload []byte, at int64) (err error) {
	switch kind {
	case KindStart:
		var s Start
		if err = json.Unmarshal(payload, &s); err == nil {
			l.Starts, l.End = append(l.Starts, s), nil
			l.rewind(s.Step)
		}
	case KindSettings:
		l.Settings = nil
		err = json.Unmarshal(payload, &l.Settings)
	case KindMachine:
		l.Machine = slices.Clone(payload)
	case KindPlan:
		l.Plans = append(l.Plans, PlanAt{l.Step(), at})
	case KindIteration:
		it := readIteration(payload)
		l.rewind(it.Step - 1)
		l.Iterations = append(l.Iterations, it)
	case KindTrace:
		if len(payload) == 0 {
			return errTrace
		}
		var t Trace
		if t, err = readTrace(payload); err == nil {
			l.Traces = append(l.Traces, TraceAt{t.Step, t.Forecast, t.Phase, at})
		}
	case KindGeneration:
		l.Generations = append(l.Generations, readGeneration(payload))
	case KindProfile:
		err = appendJSON(&l.Profiles, payload)
	case KindAlert:
		err = appendJSON(&l.Alerts, payload)
	case KindCheckpoint:
		err = appendJSON(&l.Checkpoints, payload)
	case KindSample:
		err = appendJSON(&l.Samples, payload)
	case KindEnd:
		var e End
		if err = json.Unmarshal(payload, &e); err == nil {
			l.End = &e
		}
	}
	return err
}

func appendJSON[T any](list *[]T, payload []byte) error {
	var v T
	err := json.Unmarshal(payload, &v)
	if err == nil {
		*list = append(*list, v)
	}
	return err
}

// rewind forgets iterations after so many steps: the run goes on from there.
func (l *Log) rewind(step int64) {
	n := len(l.Iterations)
	for n > 0 && l.Iterations[n-1].Step > step {
		n--
	}
	l.Iterations = l.Iterations[:n]
}

// Step is the number of steps done, as far as the log knows.
func (l *Log) Step() int64 {
	if n := len(l.Iterations); n > 0 {
		return l.Iterations[n-1].Step
	}
	if n := len(l.Generations); n > 0 {
		return l.Generations[n-1].Step
	}
	if n := len(l.Starts); n > 0 {
		return l.Starts[n-1].Step
	}
	return 0
}

// payload reads a record again.
func (l *Log) payload(at int64, want Kind) ([]byte, error) {
	r := *l.reader
	r.buffer = nil
	r.GoTo(at)
	kind, payload, err := r.Next()
	if err == nil && kind != want {
		err = &DamagedError{l.Path, at}
	}
	return payload, err
}

// ReadPlan reads a plan of the log.
func (l *Log) ReadPlan(p PlanAt) (out Plan, err error) {
	b, err := l.payload(p.at, KindPlan)
	if err == nil {
		b, err = unpack(b)
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("%s: the plan after step %d: %w", l.Path, p.Step, err)
	}
	return out, nil
}

// ReadTrace reads a trace of the log.
func (l *Log) ReadTrace(t TraceAt) (Trace, error) {
	b, err := l.payload(t.at, KindTrace)
	var out Trace
	if err == nil {
		out, err = readTrace(b)
	}
	if err != nil {
		return out, fmt.Errorf("%s: the trace of step %d: %w", l.Path, t.Step, err)
	}
	return out, nil
}

// Summary is a run in a line, from the beginning and the end of its log alone.
type Summary struct {
	Path     string    `json:"path"` // of the log
	Start    Start     `json:"start"`
	Settings []Setting `json:"settings,omitempty"`
	// First and Last are the first and the newest iteration; nil where there is none.
	First *Iteration `json:"first,omitempty"`
	Last  *Iteration `json:"last,omitempty"`
	// Generated is the newest stretch of a run that generates texts; nil of others.
	Generated *Generation `json:"generated,omitempty"`
	End       *End        `json:"end,omitempty"` // of the latest process
	// Recent are the newest iterations and alerts, oldest first, as far as the end of the
	// log has them.
	Recent            []Iteration  `json:"-"`
	RecentGenerations []Generation `json:"-"`
	Alerts            []Alert      `json:"alerts,omitempty"`
	// Changed is when the log was last written.
	Changed time.Time `json:"changed"`
	Error   string    `json:"error,omitempty"` // why the log could not be read, or only in part
}

// Summarize reads a run in a line. It reads some kilobytes, however long the log is, unless
// the log ends with a part of a record.
func Summarize(path string) (s Summary, err error) {
	s.Path = path
	f, err := os.Open(path)
	if err != nil {
		return s, fmt.Errorf("opening the event log: %w", err)
	}
	defer f.Close() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.Changed = info.ModTime()
	r, err := newReader(f, path)
	if err != nil {
		return s, err
	}
	if err := s.readHead(r); err != nil {
		return s, err
	}
	r.tail(info.Size(), func(kind Kind, payload []byte) bool {
		switch kind {
		case KindEnd:
			var e End
			if s.End == nil && len(s.Recent)+len(s.RecentGenerations) == 0 && json.Unmarshal(payload, &e) == nil {
				s.End = &e
			}
		case KindStart: // whoever ended before it does not count
			var again Start
			if json.Unmarshal(payload, &again) == nil {
				s.Start = again
			}
			return false
		case KindAlert:
			var a Alert
			if json.Unmarshal(payload, &a) == nil {
				s.Alerts = append(s.Alerts, a)
			}
		case KindIteration:
			s.Recent = append(s.Recent, readIteration(payload))
		case KindGeneration:
			s.RecentGenerations = append(s.RecentGenerations, readGeneration(payload))
		}
		return true
	})
	slices.Reverse(s.Alerts)
	slices.Reverse(s.Recent)
	slices.Reverse(s.RecentGenerations)
	if n := len(s.RecentGenerations); n > 0 {
		s.Generated = &s.RecentGenerations[n-1]
	}
	if n := len(s.Recent); n > 0 {
		s.Last = &s.Recent[n-1]
	}
	first := s.First != nil || s.Generated != nil
	if !first || s.Last != nil || len(s.RecentGenerations) > 0 {
		return s, nil
	}
	return s, s.readAll(path) // a part of a record at the end, or a large one
}

// readHead reads up to the first iteration, or the first stretch of generating, which Generated then is.
func (s *Summary) readHead(r *Reader) error {
	for s.First == nil && s.Generated == nil {
		at := r.At()
		kind, err := r.Skip()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if kind != KindStart && kind != KindSettings && kind != KindIteration && kind != KindGeneration {
			continue
		}
		r.GoTo(at)
		_, payload, err := r.Next()
		if err != nil {
			return err
		}
		switch kind {
		case KindStart:
			err = json.Unmarshal(payload, &s.Start)
		case KindSettings:
			s.Settings = nil
			err = json.Unmarshal(payload, &s.Settings)
		case KindIteration:
			it := readIteration(payload)
			s.First = &it
		case KindGeneration:
			g := readGeneration(payload)
			s.Generated = &g
		}
		if err != nil {
			return &DamagedError{s.Path, at}
		}
	}
	return nil
}

// readAll reads the newest iteration record by record.
func (s *Summary) readAll(path string) error {
	l, err := Follow(path)
	if err != nil {
		return err
	}
	if n := len(l.Starts); n > 0 {
		s.Start = l.Starts[n-1]
	}
	if n := len(l.Iterations); n > 0 {
		s.Last = &l.Iterations[n-1]
	}
	if n := len(l.Generations); n > 0 {
		s.Generated = &l.Generations[n-1]
	}
	s.End = l.End
	return errors.Join(l.Damaged, l.Close())
}
