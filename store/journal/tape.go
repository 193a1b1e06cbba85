package journal

import (
	"errors"
	"io"

	"spillway/device"
	"spillway/store"
)

// tape is memory on a disk that is written, and read, from its start to its end.
type tape struct {
	memory, stage device.Memory
	queue         device.Queue
}

// tapeStage is the size in bytes of the host buffer between the tape and its users.
const tapeStage = 4 << 20

func newTape(disk *store.Disk, bytes int64) (t *tape, err error) {
	t = &tape{}
	if t.memory, err = disk.Alloc(bytes); err == nil {
		t.stage, err = disk.HostAlloc(tapeStage)
	}
	if err == nil {
		t.queue, err = disk.Queue("tape")
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tape) close() error {
	var errs []error
	if t.queue != nil {
		errs = append(errs, t.queue.Close())
	}
	for _, m := range []device.Memory{t.memory, t.stage} {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	return errors.Join(errs...)
}

// buffers gives the first n bytes of the stage, and n bytes of the tape at an offset.
func (t *tape) buffers(at, n int64) (stage, tape device.Buffer) {
	return device.Buffer{Memory: t.stage, Bytes: n}, device.Buffer{Memory: t.memory, Offset: at, Bytes: n}
}

// tapeWriter collects bytes in the stage and copies it to the tape when it is full.
type tapeWriter struct {
	*tape
	at     int64 // on the tape
	filled int64 // of the stage
}

func (w *tapeWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := copy(w.stage.Host()[w.filled:], rest)
		rest, w.filled = rest[n:], w.filled+int64(n)
		if w.filled == tapeStage {
			if err := w.Flush(); err != nil {
				return len(p) - len(rest), err
			}
		}
	}
	return len(p), nil
}

// Flush copies what is in the stage to the tape.
func (w *tapeWriter) Flush() error {
	stage, tape := w.buffers(w.at, w.filled)
	if err := w.queue.Copy(tape, stage); err != nil {
		return err
	}
	w.at, w.filled = w.at+w.filled, 0
	return w.queue.Sync()
}

// tapeReader reads the tape through the stage.
type tapeReader struct {
	*tape
	at   int64  // on the tape
	left []byte // of the stage
}

func (r *tapeReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		n := min(tapeStage, r.memory.Size()-r.at)
		if n == 0 {
			return 0, io.EOF
		}
		stage, tape := r.buffers(r.at, n)
		if err := errors.Join(r.queue.Copy(stage, tape), r.queue.Sync()); err != nil {
			return 0, err
		}
		r.at, r.left = r.at+n, stage.Host()
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}
