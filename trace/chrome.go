package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// WriteChrome writes events in the Trace Event Format that Perfetto and
// chrome://tracing read: a device is a process, a queue is a thread, times are in
// microseconds. Equal events give equal bytes.
func WriteChrome(w io.Writer, events []Event) error {
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
	ids, separator := map[Lane]laneID{}, "\n"
	out.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	for i, l := range lanes {
		out.WriteString(separator)
		if i == 0 || lanes[i-1].Device != l.Device {
			last = laneID{last.process + 1, 0}
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
