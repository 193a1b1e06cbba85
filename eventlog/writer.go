package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"spillway/trace"
)

// Writer appends to an event log. Its methods never wait for the disk: records are put in a
// buffer, and a goroutine of its own writes them. What does not fit the buffer, since the
// disk is slow or full, is dropped and counted. It can be used by several goroutines; a nil
// writer takes everything and does nothing.
type Writer struct {
	o    Options
	file file
	wake chan struct{} // the buffer has something
	// closed is closed when the writer is, done when its goroutine has ended.
	closed, done chan struct{}

	mu      sync.Mutex
	buffer  []byte // records to be written, allocated once
	tasks   []task // records that are made by the goroutine
	dropped int64  // records that were lost since the last write that worked
	closing bool
	err     error // of the last write, nil once it worked again
	best    float64
	latest  float64 // eval losses
	sample  Sample

	// What follows is the goroutine's.
	end     int64  // of the last whole record in the file
	spare   []byte // takes turns with buffer
	made    []byte // a record that a task has made
	pending []task
}

// task is a large record, to be put behind the first so many bytes of the buffer.
type task struct {
	at   int
	kind Kind
	make func([]byte) ([]byte, error) // appends the payload
}

// file is what a writer needs of one.
type file interface {
	io.WriterAt
	io.Closer
	Sync() error
}

// Options of a writer. All may be left out.
type Options struct {
	// Failed is called, from another goroutine, when the log cannot be written any more, once
	// until it can again: the run goes on without.
	Failed func(error)
	// Sample is called every SampleEvery (1 s), from another goroutine.
	Sample      func() Sample
	SampleEvery time.Duration
}

const (
	// bufferSize holds the iterations of some seconds, even of very short ones.
	bufferSize = 1 << 20
	maxTasks   = 64
	// writeEvery is the least time between two writes, so that short iterations share one.
	writeEvery = 20 * time.Millisecond
	// retryEvery is the time between tries on a disk that is full.
	retryEvery = 2 * time.Second
	// closeWait is how long Close waits for the disk.
	closeWait = 5 * time.Second
)

// Open opens a log to append to, and creates it if there is none. What a killed process left
// of its last record is overwritten. A damaged log is not appended to: it is an error.
func Open(path string, o Options) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	end, err := findEnd(f, path)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil && end == 0 { // at once, so that whoever is killed next leaves a log
		if _, wrong := f.WriteAt(header(), 0); wrong == nil {
			end = int64(headerSize)
		} // a disk that is full now may have space later
	}
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", errors.Join(err, f.Close()))
	}
	return start(f, end, o), nil
}

// findEnd is the end of the last whole record, 0 where there is not even a header.
func findEnd(f *os.File, path string) (int64, error) {
	r, err := newReader(f, path)
	if err != nil {
		return 0, err
	}
	for {
		if _, _, err := r.Next(); errors.Is(err, io.EOF) && !r.headed {
			return 0, nil
		} else if errors.Is(err, io.EOF) {
			return r.At(), nil
		} else if err != nil {
			return 0, err
		}
	}
}

func start(f file, end int64, o Options) *Writer {
	if o.SampleEvery == 0 {
		o.SampleEvery = time.Second
	}
	w := &Writer{o: o, file: f, end: end, wake: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{}), buffer: make([]byte, 0, bufferSize), spare: make([]byte, 0, bufferSize)}
	if end == 0 {
		w.buffer = append(w.buffer, header()...)
	}
	go w.loop()
	return w
}

// Iteration writes an iteration, with the eval losses so far and the latest sample filled
// in. It allocates nothing and does not wait.
func (w *Writer) Iteration(it *Iteration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if it.EvalLoss != 0 {
		w.latest = it.EvalLoss
		if w.best == 0 || it.EvalLoss < w.best {
			w.best = it.EvalLoss
		}
	}
	it.BestEval, it.LatestEval = w.best, w.latest
	it.Resident = w.sample.Resident
	w.put(KindIteration, iterationWords, it.append)
	w.mu.Unlock()
	w.notify()
}

// Generation writes a stretch of generating, with the latest sample filled in. It allocates
// nothing and does not wait.
func (w *Writer) Generation(g *Generation) {
	if w == nil {
		return
	}
	w.mu.Lock()
	g.Resident = w.sample.Resident
	w.put(KindGeneration, generationWords, g.append)
	w.mu.Unlock()
	w.notify()
}

// put adds a record of so many 64-bit words where there is room for it; the caller holds w.mu.
func (w *Writer) put(kind Kind, words int, fill func([]byte) []byte) {
	if len(w.buffer)+frameSize+8*words > cap(w.buffer) || w.closing {
		w.dropped++
		return
	}
	w.buffer = appendRecord(w.buffer, kind, fill)
}

// notify has the goroutine look.
func (w *Writer) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it will
	}
}

// add has a record made and written by the goroutine.
func (w *Writer) add(kind Kind, make func([]byte) ([]byte, error)) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if len(w.tasks) == maxTasks || w.closing {
		w.dropped++
	} else {
		w.tasks = append(w.tasks, task{len(w.buffer), kind, make})
	}
	w.mu.Unlock()
	w.notify()
}

func (w *Writer) addJSON(kind Kind, v any) {
	w.add(kind, func(b []byte) ([]byte, error) {
		text, err := json.Marshal(v)
		return append(b, text...), err
	})
}

// Start writes that a process begins.
func (w *Writer) Start(s Start) { w.addJSON(KindStart, s) }

// Settings writes those of the run.
func (w *Writer) Settings(list []Setting) { w.addJSON(KindSettings, list) }

// Machine writes what the run has; v is written as JSON.
func (w *Writer) Machine(v any) { w.addJSON(KindMachine, v) }

// Plan writes the plan that is carried out after so many steps, as JSON. It must not change
// any more: it is read by another goroutine.
func (w *Writer) Plan(step int64, plan any) {
	w.add(KindPlan, func(b []byte) ([]byte, error) {
		raw, err := json.Marshal(plan)
		if err != nil {
			return b, err
		}
		text, err := json.Marshal(Plan{step, raw})
		if err != nil {
			return b, err
		}
		packed, err := pack(text)
		return append(b, packed...), err
	})
}

// Trace writes a trace, measured or by the forecast. Its events must not change any more.
func (w *Writer) Trace(t Trace) {
	w.add(KindTrace, func(b []byte) ([]byte, error) { return t.append(b), nil })
}

// TraceOf is Trace of events that are made only when the record is written, by the writer's
// goroutine.
func (w *Writer) TraceOf(step int64, forecast bool, make func() ([]trace.Event, error)) {
	w.add(KindTrace, func(b []byte) ([]byte, error) {
		events, err := make()
		t := Trace{Step: step, Forecast: forecast, Events: events}
		return t.append(b), err
	})
}

// Alert writes an alert.
func (w *Writer) Alert(a Alert) { w.addJSON(KindAlert, a) }

// Checkpoint writes that one was saved.
func (w *Writer) Checkpoint(c Checkpoint) { w.addJSON(KindCheckpoint, c) }

// Profile writes what the ops of a step took.
func (w *Writer) Profile(p Profile) { w.addJSON(KindProfile, p) }

// End writes how the process ended.
func (w *Writer) End(e End) { w.addJSON(KindEnd, e) }

// Latest is the newest sample.
func (w *Writer) Latest() Sample {
	if w == nil {
		return Sample{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sample
}

// Dropped is the number of records that were not written, and why.
func (w *Writer) Dropped() (int64, error) {
	if w == nil {
		return 0, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped, w.err
}

// Close writes what is in the buffer and closes the file. A disk that does not answer is
// waited for some seconds only.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	again := w.closing
	w.closing = true
	w.mu.Unlock()
	if again {
		return nil
	}
	close(w.closed)
	select {
	case <-w.done:
	case <-time.After(closeWait):
		return fmt.Errorf("closing the event log: the disk does not answer")
	}
	err := w.err
	if err == nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.file.Close()); err != nil {
		return fmt.Errorf("writing the event log: %w", err)
	}
	return nil
}

// loop writes what comes, until the writer closes.
func (w *Writer) loop() {
	defer close(w.done)
	var sampling <-chan time.Time
	if w.o.Sample != nil {
		ticker := time.NewTicker(w.o.SampleEvery)
		defer ticker.Stop()
		sampling = ticker.C
		w.takeSample()
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-w.wake:
		case <-sampling:
			w.takeSample()
		case <-w.closed:
		}
		wait := writeEvery
		if w.flush() != nil {
			wait = retryEvery
		}
		pause.Reset(wait)
		select {
		case <-w.closed:
			w.flush() // its error is what Close returns
			return
		case <-pause.C:
		}
	}
}

func (w *Writer) takeSample() {
	s := w.o.Sample()
	s.Time = time.Now()
	w.mu.Lock()
	w.sample = s
	w.mu.Unlock()
	w.addJSON(KindSample, s)
}

// flush writes the buffer. Where that fails, what was in it is lost.
func (w *Writer) flush() error {
	w.mu.Lock()
	w.buffer, w.spare = w.spare[:0], w.buffer
	w.pending, w.tasks = append(w.pending[:0], w.tasks...), w.tasks[:0]
	w.mu.Unlock()
	err := w.writeOut()
	w.mu.Lock()
	before, dropped := w.err, w.dropped
	w.err = err
	if err != nil {
		w.dropped += int64(len(w.spare)/(frameSize+8*iterationWords) + len(w.pending))
	} else {
		w.dropped = 0
	}
	w.mu.Unlock()
	if err != nil && before == nil && w.o.Failed != nil {
		w.o.Failed(fmt.Errorf("writing the event log: %w; the run goes on, and what happens until it can be written again is missing there", err))
	}
	if err == nil && dropped > 0 {
		w.Alert(Alert{Time: time.Now(), Level: Warning, Name: "event-log", Text: fmt.Sprintf("%d records before this one are missing: they could not be written", dropped)})
	}
	return err
}

// writeOut writes spare with the records of pending tasks in their places.
func (w *Writer) writeOut() error {
	from := 0
	for _, t := range w.pending {
		if err := w.write(w.spare[from:t.at]); err != nil {
			return err
		}
		from = t.at
		var failed error
		w.made = appendRecord(w.made[:0], t.kind, func(b []byte) []byte {
			b, failed = t.make(b)
			return b
		})
		if failed != nil || len(w.made) > maxPayload {
			continue // one that cannot be made is left out; the run does not depend on it
		}
		err := w.write(w.made)
		if cap(w.made) > bufferSize {
			w.made = nil
		}
		if err != nil {
			return err
		}
	}
	return w.write(w.spare[from:])
}

// write puts whole records behind the last one. What a failed write leaves is overwritten by
// the next.
func (w *Writer) write(records []byte) error {
	if len(records) == 0 {
		return nil
	}
	if w.end == 0 && string(records[:min(len(magic), len(records))]) != magic { // the header was lost
		if _, err := w.file.WriteAt(header(), 0); err != nil {
			return err
		}
		w.end = int64(headerSize)
	}
	n, err := w.file.WriteAt(records, w.end)
	if err != nil {
		return err
	}
	w.end += int64(n)
	return nil
}
