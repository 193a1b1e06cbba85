package eventlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/bounded"
	"spillway/trace"
)

func iteration(step int64) Iteration {
	return Iteration{Step: step, MaxSteps: 100, Loss: 1 / float64(step), GradNorm: 0.5, LR: 1e-4, LossScale: 2, StateBytes: 7, Seconds: 0.01, TokensPerSecond: 512, ShareOfRoofline: 0.5,
		PredictedBytes: 1 << 30, MeasuredBytes: 1<<30 - 1, ETA: 3, UnixNano: 1_700_000_000_000_000_000 + step, Tokens: 64, FeedSeconds: 1e-4, Forecast: 9e-3, Bound: ResourceOf("link to device"),
		Tiers: Tiers{1, 2, 3, 4}}
}

func someTrace() Trace {
	gpu := trace.Lane{Device: "gpu0", Queue: "compute"}
	return Trace{Step: 3, Phase: "rows 1", Events: []trace.Event{
		{Verb: trace.Run, Name: "layer forward", Lane: gpu, Start: 10, End: 20, Block: 0, MicroBatch: 0},
		{Verb: trace.Move, Name: "layer weights", Lane: trace.Lane{Device: "gpu0", Queue: "in"}, Start: -5, End: 12, Bytes: 1 << 40, Block: trace.None, MicroBatch: trace.None},
		{Verb: trace.Update, Name: "layer forward", Lane: gpu, Start: 20, End: 1 << 50, Block: 7, MicroBatch: 1},
	}}
}

// write makes a log with records of all kinds.
func write(t testing.TB, path string, steps int64) {
	t.Helper()
	w, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Start(Start{Time: time.Unix(1, 0), Run: "run-1", Model: "tiny", PID: 7})
	w.Settings([]Setting{{"learning-rate", "1e-4"}})
	w.Machine(map[string]int{"cores": 2})
	w.Plan(0, map[string]string{"strategy": "standard"})
	for n := range steps {
		it := iteration(n + 1)
		w.Iteration(&it)
	}
	w.Trace(someTrace())
	w.Alert(Alert{Name: "loss-spike", Step: 3, Text: "look"})
	w.Checkpoint(Checkpoint{Step: steps, Path: "checkpoint-5"})
	w.End(End{Step: steps, How: Done})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	write(t, path, 5)
	l, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Damaged != nil || len(l.Iterations) != 5 || len(l.Starts) != 1 || len(l.Plans) != 1 || len(l.Traces) != 1 || len(l.Alerts) != 1 || len(l.Checkpoints) != 1 || l.End == nil || l.End.How != Done {
		t.Fatalf("%+v", l)
	}
	for i, it := range l.Iterations {
		if want := iteration(int64(i) + 1); it != want {
			t.Errorf("got %+v, want %+v", it, want)
		}
	}
	p, err := l.ReadPlan(l.Plans[0])
	if err != nil || string(p.Plan) != `{"strategy":"standard"}` {
		t.Errorf("the plan is %s, %v", p.Plan, err)
	}
	if got, err := l.ReadTrace(l.Traces[0]); err != nil || !reflect.DeepEqual(got, someTrace()) {
		t.Errorf("the trace is %+v, %v", got, err)
	}
	if string(l.Machine) != `{"cores":2}` || l.Settings[0].Value != "1e-4" {
		t.Errorf("%s, %v", l.Machine, l.Settings)
	}
}

// A run that goes on appends; steps that it repeats count once.
func TestGoingOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	write(t, path, 5)
	w, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Start(Start{Step: 3, PID: 8})
	for _, step := range []int64{4, 5, 6} {
		it := iteration(step)
		it.Loss = 77
		w.Iteration(&it)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if len(l.Iterations) != 6 || l.Iterations[2].Loss == 77 || l.Iterations[3].Loss != 77 || l.End != nil || l.Step() != 6 {
		t.Errorf("%d iterations, end %v", len(l.Iterations), l.End)
	}
	s, err := Summarize(path)
	if err != nil || s.Last == nil || s.Last.Step != 6 || s.First.Step != 1 || s.End != nil && s.Start.PID != 8 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A log that is cut anywhere gives its whole records, and is written on from there.
func TestCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	write(t, path, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for n := headerSize; n <= len(whole); n++ {
		l, err := readBytes(whole[:n])
		if err != nil || l.Damaged != nil {
			t.Fatalf("cut to %d of %d bytes: %v, %v", n, len(whole), err, l.Damaged)
		}
		if len(l.Iterations) < last {
			t.Fatalf("cut to %d bytes: %d iterations after %d", n, len(l.Iterations), last)
		}
		last = len(l.Iterations)
		if n%11 != 0 && n < len(whole)-40 {
			continue
		}
		cut := filepath.Join(dir, "cut")
		if err := os.WriteFile(cut, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Summarize(cut)
		if got := s.Last; err != nil || (got != nil) != (last > 0) || got != nil && got.Step != int64(last) {
			t.Fatalf("cut to %d bytes: %v, %+v with %d iterations", n, err, got, last)
		}
		w, err := Open(cut, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.Start(Start{PID: 99, Step: int64(last)})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = Follow(cut)
		if err != nil || l.Damaged != nil || len(l.Iterations) != last || l.Starts[len(l.Starts)-1].PID != 99 {
			t.Fatalf("cut to %d bytes and written on: %v, %+v", n, err, l)
		}
		l.Close()
	}
	if last != 3 {
		t.Errorf("%d iterations at the end", last)
	}
}

// readBytes reads a log in memory.
func readBytes(b []byte) (*Log, error) {
	r, err := newReader(bytes.NewReader(b), "memory")
	if err != nil {
		return nil, err
	}
	l := &Log{Path: "memory", reader: r}
	_, err = l.Update()
	return l, err
}

// No flipped bit goes unnoticed, and what is before it is read.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	write(t, path, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sound, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	sound.Close()
	for bit := 0; bit < 8*len(whole); bit += 5 {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		l, err := readBytes(bad)
		if err != nil {
			continue // the header
		}
		whole := l.Damaged == nil && len(l.Iterations) == len(sound.Iterations) && l.End != nil
		for i := range l.Iterations {
			if l.Iterations[i] != sound.Iterations[i] {
				t.Errorf("bit %d: iteration %d is %+v", bit, i, l.Iterations[i])
			}
		}
		if whole {
			t.Errorf("bit %d is flipped and nothing shows it", bit)
		}
	}
	var damaged *DamagedError
	bad := bytes.Clone(whole)
	bad[headerSize+frontSize+2] ^= 4
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err := Follow(path); err != nil || !errors.As(l.Damaged, &damaged) || damaged.At != int64(headerSize) {
		t.Errorf("%v", err)
	}
	if _, err := Open(path, Options{}); !errors.As(err, &damaged) {
		t.Errorf("a damaged log is written on: %v", err)
	}
}

func TestOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	newer := bytes.Clone(header())
	newer[len(magic)] = Version + 1
	binary.LittleEndian.PutUint32(newer[headerSize-4:], crc32.Checksum(newer[:headerSize-4], table))
	var version *VersionError
	var format *FormatError
	for _, c := range []struct {
		text []byte
		want any
	}{{newer, &version}, {[]byte(`{"step":1}` + "\n"), &format}, {[]byte("spillway log"), &format}} {
		if err := os.WriteFile(path, c.text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenReader(path); !errors.As(err, c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	if _, err := Follow(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A process that is killed before its first record leaves a file that is empty, or has a part of a
// header: that is a log without records, which is read, followed and continued. Other short files
// are not written over.
func TestKilledBeforeTheFirstRecord(t *testing.T) {
	for n := range headerSize + 1 {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, header()[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := Follow(path)
		if err != nil || l.Damaged != nil || len(l.Iterations) != 0 {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if s, err := Summarize(path); err != nil || s.Last != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		w, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, header()) {
			t.Errorf("%d bytes: an open log has %q, %v", n, b, err)
		}
		it := iteration(1)
		w.Iteration(&it)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if changed, err := l.Update(); err != nil || !changed || len(l.Iterations) != 1 {
			t.Errorf("%d bytes: %d steps appeared, %v", n, len(l.Iterations), err)
		}
		l.Close()
		if n > 0 { // another file, as short
			other := append(bytes.Clone(header()[:n-1]), 'x')
			if err := os.WriteFile(path, other, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, Options{}); err == nil {
				t.Errorf("%q was opened", other)
			}
			if b, _ := os.ReadFile(path); !bytes.Equal(b, other) {
				t.Errorf("%q was written over: %q", other, b)
			}
		}
	}
}

// Kinds and numbers that a newer writer adds are passed over.
func TestWhatIsAddedLater(t *testing.T) {
	b := appendRecord(header(), 99, func(b []byte) []byte { return append(b, "what is this"...) })
	it := iteration(1)
	b = appendRecord(b, KindIteration, func(b []byte) []byte { return append(it.append(b), make([]byte, 80)...) })
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Follow(path)
	if err != nil || l.Damaged != nil || len(l.Iterations) != 1 || l.Iterations[0] != it {
		t.Errorf("%v, %+v", err, l)
	}
	l.Close()
}

// A log can be read while it is written.
func TestFollowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	w, err := Open(path, Options{Sample: func() Sample { return Sample{Resident: 5} }, SampleEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.Start(Start{PID: 1})
	l, err := Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for ; len(l.Samples) == 0; time.Sleep(time.Millisecond) { // it comes by itself
		if _, err := l.Update(); err != nil {
			t.Fatal(err)
		}
	}
	for n := int64(1); n <= 50; n++ {
		it := iteration(n)
		w.Iteration(&it)
		if _, err := l.Update(); err != nil || l.Damaged != nil {
			t.Fatal(err, l.Damaged)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if changed, err := l.Update(); err != nil || !changed || len(l.Iterations) != 50 || len(l.Samples) == 0 || l.Samples[0].Resident != 5 {
		t.Errorf("%v: %d iterations, %d samples", err, len(l.Iterations), len(l.Samples))
	}
}

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("EVENTLOG_WRITES"); path != "" {
		w, err := Open(path, Options{})
		if err != nil {
			panic(err)
		}
		w.Start(Start{PID: os.Getpid()})
		for n := int64(1); ; n++ {
			it := iteration(n)
			w.Iteration(&it)
			w.Trace(someTrace())
			if n%64 == 0 {
				fmt.Println(n)
				time.Sleep(time.Millisecond)
			}
		}
	}
	os.Exit(m.Run())
}

// A process that is killed at any moment leaves a log that is read up to its last record,
// with nothing missing in between but what was said to be dropped.
func TestKilledWriters(t *testing.T) {
	dir := t.TempDir()
	for n := range 12 {
		path := filepath.Join(dir, fmt.Sprint(n))
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "EVENTLOG_WRITES="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil { // it writes
			t.Fatal(err)
		}
		time.Sleep(time.Duration(n*7) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // it was killed
		l, err := Follow(path)
		if err != nil {
			t.Fatal(err)
		}
		if l.Damaged != nil {
			t.Errorf("kill %d: %v", n, l.Damaged)
		}
		l.Close()
		if _, err := Summarize(path); err != nil {
			t.Errorf("kill %d: %v", n, err)
		}
		w, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// disk is a file in memory that can be full or slow.
type disk struct {
	bytes []byte
	full  atomic.Bool
	slow  chan struct{} // a write waits until it is closed
}

func (d *disk) WriteAt(p []byte, at int64) (int, error) {
	if d.slow != nil {
		<-d.slow
	}
	if d.full.Load() {
		n := len(p) / 2 // a part goes through
		d.put(p[:n], at)
		return n, errors.New("no space left on device")
	}
	d.put(p, at)
	return len(p), nil
}

func (d *disk) put(p []byte, at int64) {
	if need := int(at) + len(p); need > len(d.bytes) {
		d.bytes = append(d.bytes, make([]byte, need-len(d.bytes))...)
	}
	copy(d.bytes[at:], p)
}
func (*disk) Sync() error  { return nil }
func (*disk) Close() error { return nil }

// A full disk is an alert, once; the log is sound and goes on when there is space.
func TestFullDisk(t *testing.T) {
	d := &disk{}
	failed := make(chan error, 100)
	w := start(d, 0, Options{Failed: func(err error) { failed <- err }})
	put := func(step int64) {
		it := iteration(step)
		w.Iteration(&it)
	}
	put(1)
	time.Sleep(3 * writeEvery)
	d.full.Store(true)
	for n := int64(2); n < 40; n++ {
		put(n)
		time.Sleep(time.Millisecond)
	}
	if err := <-failed; !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "the run goes on") {
		t.Error(err)
	}
	d.full.Store(false)
	put(40)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if len(failed) != 0 {
		t.Errorf("%d more alerts", len(failed))
	}
	if l, err := readBytes(d.bytes); err != nil || l.Damaged != nil || l.Step() != 40 {
		t.Errorf("%v, %v, step %d", err, l.Damaged, l.Step())
	}
}

// A disk that does not answer does not hold up a run: records are dropped and counted.
func TestSlowDisk(t *testing.T) {
	d := &disk{slow: make(chan struct{})}
	w := start(d, 0, Options{})
	it := iteration(1)
	for range 3 * bufferSize / (8 * iterationWords) {
		w.Iteration(&it) // who waited for the disk would wait for ever
	}
	if n, _ := w.Dropped(); n == 0 {
		t.Error("nothing was dropped")
	}
	close(d.slow)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// allocatesNothing says that what record writes is written without allocating.
func allocatesNothing(t *testing.T, record func(w *Writer)) {
	t.Helper()
	w, err := Open(filepath.Join(t.TempDir(), "x"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { record(w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestIterationAllocatesNothing(t *testing.T) {
	it := iteration(1)
	allocatesNothing(t, func(w *Writer) { w.Iteration(&it) })
	var none *Writer
	none.Iteration(&it)
	none.Alert(Alert{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkIteration is what an iteration of 10 ms pays: 20 µs would be 0.2% of it.
func BenchmarkIteration(b *testing.B) {
	w := start(&disk{slow: make(chan struct{})}, 0, Options{}) // nothing is written meanwhile
	it := iteration(1)
	b.ReportAllocs()
	for b.Loop() {
		w.Iteration(&it)
		w.buffer = w.buffer[:0]
	}
}

// A thousand runs of ten thousand steps are listed without reading them.
func BenchmarkSummarize(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x")
	w, err := Open(path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	w.Start(Start{})
	for n := range int64(10_000) {
		it := iteration(n + 1)
		for {
			w.Iteration(&it)
			if lost, _ := w.Dropped(); lost == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if n%1000 == 999 {
			time.Sleep(2 * writeEvery)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Summarize(path); err != nil {
			b.Fatal(err)
		}
	}
}

// The JSON of an iteration reads back.
func TestIterationJSON(t *testing.T) {
	it := iteration(3)
	text, err := json.Marshal(it)
	if err != nil {
		t.Fatal(err)
	}
	var back Iteration
	if err := json.Unmarshal(text, &back); err != nil || back != it {
		t.Errorf("%v: %s", err, text)
	}
	for _, key := range []string{`"step":3`, `"lr":0.0001`, `"grad_norm":0.5`, `"eta_s":3`, `"bound":"link to device"`} {
		if !strings.Contains(string(text), key) {
			t.Errorf("no %s in %s", key, text)
		}
	}
}

// Files are hostile: whatever a log holds, reading it takes bounded time and memory.
func FuzzLog(f *testing.F) {
	path := filepath.Join(f.TempDir(), FileName)
	write(f, path, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-9])
	f.Add(header())
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded.Check(t, len(b), func() {
			r, err := newReader(bytes.NewReader(b), "fuzz")
			if err != nil {
				return
			}
			l := &Log{Path: "fuzz", reader: r}
			if _, err := l.Update(); err != nil {
				t.Error(err) // bytes in memory give no other errors than damage
			}
			for _, at := range l.Traces {
				l.ReadTrace(at) // errors are fine
			}
			r.tail(int64(len(b)), func(Kind, []byte) bool { return true })
		})
		// Payloads whose checksums hold are hostile too.
		record := appendRecord(header(), KindTrace, func(x []byte) []byte { return append(x, b...) })
		bounded.Check(t, len(b), func() {
			if _, err := readTrace(b); err != nil && !errors.Is(err, errTrace) {
				t.Error(err)
			}
			r, err := newReader(bytes.NewReader(record), "fuzz")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Next(); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	})
}
