package bench

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"spillway/executor"
	"spillway/plan"
	"spillway/trace"
)

// What a row reports besides its time: where the time of an iteration went, and which bits
// came out.

// traceIteration runs an iteration with tracing, and adds up where the time of the first
// device's compute queue went.
func (g *GPURow) traceIteration(e *executor.Executor, once func() error) error {
	ring := trace.NewRing(len(e.Plan().Instructions))
	if err := e.Trace(ring); err != nil {
		return err
	}
	if err := once(); err != nil {
		return err
	}
	g.events = ring.Events()
	g.Spent = timeByKind(g.events, trace.Lane{Device: e.Plan().Devices[0].Name, Queue: string(plan.Compute)})
	return e.Trace(nil)
}

// timeByKind is how many seconds of an iteration a lane spent on each kind of work, and how
// many it waited, from the first to the last event of its device. Devices have clocks of their
// own.
func timeByKind(events []trace.Event, lane trace.Lane) map[string]float64 {
	sums, first, last, busy := map[string]float64{}, int64(math.MaxInt64), int64(0), int64(0)
	for _, ev := range events {
		if ev.Verb == trace.Free || ev.Lane.Device != lane.Device {
			continue
		}
		first, last = min(first, ev.Start), max(last, ev.End)
		if ev.Lane != lane {
			continue
		}
		name := ev.Verb.String()
		if ev.Verb == trace.Run {
			name = ev.Name
		}
		sums[name] += float64(ev.End-ev.Start) / giga
		busy += ev.End - ev.Start
	}
	if last > first {
		sums["waiting"] = float64(last-first-busy) / giga
	}
	return sums
}

// digestAfter runs some iterations and gives a checksum of their losses and of the final
// weights.
func digestAfter(iterations int, e *executor.Executor, once func() error) (string, error) {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for range iterations {
		if err := once(); err != nil {
			return "", err
		}
		if err := binary.Write(sum, binary.LittleEndian, e.Loss()); err != nil {
			return "", err
		}
	}
	for _, w := range e.Weights() {
		if err := e.Read(w, func(_ int64, chunk []byte) error { _, err := sum.Write(chunk); return err }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%08x", sum.Sum32()), nil
}

// saveTimeline writes the events of the last row that was measured; "" is nowhere.
func (r *GPUReport) saveTimeline(path string) error {
	f, err := trace.CreateChrome(path)
	if err != nil || f == nil {
		return err
	}
	if n := len(r.Results); n > 0 {
		f.Write(1, r.Results[n-1].events)
	}
	return f.Close()
}

// twins says of rows that are the same training run whether their bits are equal.
func (r *GPUReport) twins() (list []string) {
	for _, a := range r.Results {
		for _, b := range r.Results {
			if a.twin != b.Name || a.Digest == "" || b.Digest == "" {
				continue
			}
			verdict := "the same losses and weights, to the bit,"
			if a.Digest != b.Digest {
				verdict = "OTHER losses or weights"
			}
			list = append(list, fmt.Sprintf("%s: %s after %d iterations as %s", a.Name, verdict, twinIterations, b.Name))
		}
	}
	return list
}
