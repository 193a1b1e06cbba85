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
	lanes := number(events)
	out.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	for i, l := range lanes.sorted {
		separate(out, i == 0)
		id := lanes.ids[l]
		if id.thread == 1 {
			fmt.Fprintf(out, `{"ph":"M","name":"process_name","pid":%d,"args":{"name":%s}},`+"\n", id.process, quote(l.Device))
		}
		fmt.Fprintf(out, `{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":%s}}`, id.process, id.thread, quote(l.Queue))
	}
	for _, e := range byStart(events) {
		separate(out, false)
		writeEvent(out, e, lanes.ids[e.Lane])
	}
	out.WriteString("\n]}\n")
	return out.Flush() // also returns the first error of any write before it
}

func separate(out *bufio.Writer, first bool) {
	if !first {
		out.WriteByte(',')
	}
	out.WriteByte('\n')
}

func writeEvent(out *bufio.Writer, e Event, id laneID) {
	fmt.Fprintf(out, `{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"bytes":%d`,
		e.Verb, quote(e.Name), id.process, id.thread, microseconds(e.Start), microseconds(max(e.End-e.Start, 0)), e.Bytes)
	if e.Block != None {
		fmt.Fprintf(out, `,"block":%d`, e.Block)
	}
	if e.MicroBatch != None {
		fmt.Fprintf(out, `,"micro_batch":%d`, e.MicroBatch)
	}
	out.WriteString("}}")
}

// laneID numbers a lane: processes and, within each, threads count from 1.
type laneID struct{ process, thread int }

type numbering struct {
	sorted []Lane
	ids    map[Lane]laneID
}

// number gives lanes their numbers in the order of their names.
func number(events []Event) numbering {
	n := numbering{ids: map[Lane]laneID{}}
	for _, e := range events {
		if _, seen := n.ids[e.Lane]; !seen {
			n.ids[e.Lane] = laneID{}
			n.sorted = append(n.sorted, e.Lane)
		}
	}
	slices.SortFunc(n.sorted, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Queue, b.Queue))
	})
	var last laneID
	for i, l := range n.sorted {
		if i == 0 || n.sorted[i-1].Device != l.Device {
			last = laneID{last.process + 1, 0}
		}
		last.thread++
		n.ids[l] = last
	}
	return n
}

// byStart orders events by time, equal times as they were recorded.
func byStart(events []Event) []Event {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.Start, b.Start) })
	return sorted
}

// micros writes nanoseconds as microseconds, without rounding.
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
