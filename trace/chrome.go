package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Counter is a number of several parts at a time, such as the bytes of each purpose in a memory.
type Counter struct {
	Process string // that it is shown with: the Device of lanes
	Name    string
	At      int64 // nanoseconds
	Parts   []Part
}

// Part is one of the numbers that a counter adds up.
type Part struct {
	Name  string
	Value int64
}

// WriteChrome writes events in the Trace Event Format that Perfetto and
// chrome://tracing read: a device is a process, a queue is a thread, times are in
// microseconds. Counters are curves with their parts on top of each other. Equal events give
// equal bytes.
func WriteChrome(w io.Writer, events []Event, counters ...Counter) error {
	out := bufio.NewWriter(w)
	var lanes []Lane
	for _, e := range events {
		if !slices.Contains(lanes, e.Lane) {
			lanes = append(lanes, e.Lane)
		}
	}
	slices.SortFunc(lanes, func(a, b Lane) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Queue, b.Queue)) })
	// Processes and, within each, threads count from 1.
	type laneID struct{ process, thread int }
	var last laneID
	ids, processes, separator := map[Lane]laneID{}, map[string]int{}, "\n"
	out.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	for i, l := range lanes {
		out.WriteString(separator)
		if i == 0 || lanes[i-1].Device != l.Device {
			last = laneID{last.process + 1, 0}
			processes[l.Device] = last.process
			fmt.Fprintf(out, `{"ph":"M","name":"process_name","pid":%d,"args":{"name":%s}},`+"\n", last.process, quote(l.Device))
		}
		last.thread++
		ids[l], separator = last, ",\n"
		fmt.Fprintf(out, `{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":%s}}`, last.process, last.thread, quote(l.Queue))
	}
	byStart := slices.Clone(events) // equal times as they were recorded
	slices.SortStableFunc(byStart, func(a, b Event) int { return cmp.Compare(a.Start, b.Start) })
	for _, e := range byStart {
		id := ids[e.Lane]
		fmt.Fprintf(out, ",\n"+`{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"bytes":%d`,
			e.Verb, quote(e.Name), id.process, id.thread, microseconds(e.Start), microseconds(max(e.End-e.Start, 0)), e.Bytes)
		if e.Block != None {
			fmt.Fprintf(out, `,"block":%d`, e.Block)
		}
		if e.MicroBatch != None {
			fmt.Fprintf(out, `,"micro_batch":%d`, e.MicroBatch)
		}
		out.WriteString("}}")
	}
	for _, c := range counters {
		process := processes[c.Process]
		if process == 0 {
			continue // nothing of it is shown
		}
		fmt.Fprintf(out, ",\n"+`{"ph":"C","name":%s,"pid":%d,"ts":%s,"args":{`, quote(c.Name), process, microseconds(c.At))
		for i, p := range c.Parts {
			if i > 0 {
				out.WriteByte(',')
			}
			fmt.Fprintf(out, `%s:%d`, quote(p.Name), p.Value)
		}
		out.WriteString("}}")
	}
	out.WriteString("\n]}\n")
	return out.Flush() // also returns the first error of any write before it
}

// microseconds writes nanoseconds as microseconds, without rounding.
func microseconds(ns int64) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return fmt.Sprintf("%s%d.%03d", sign, ns/1000, ns%1000)
}

func quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // strings always marshal
		return []byte(`""`)
	}
	return text
}
