package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/machine"
	"spillway/plan"
	"spillway/trace"
)

// What the timeline shows: a model that does not fit its GPU, so that weights, gradients
// and optimizer state move while blocks compute, and the CPU updates some of them.
const (
	shownModel   = "llama-3.2-1b"
	shownMachine = "gpu:12GiB@usable=9GiB/26GB/s/80TFLOPS/bandwidth=700GB/s,host:64GiB@update=60GB/s"
	shownBatch   = 8
	shownSeq     = 1024
)

// shade is the color of a kind of work.
type shade struct{ name, fill string }

var (
	forward   = shade{"run: forward", "#2f855a"}
	backward  = shade{"run: backward", "#2b6cb0"}
	moves     = shade{"move", "#d69e2e"}
	reduces   = shade{"reduce", "#718096"}
	updates   = shade{"update", "#c53030"}
	allShades = []shade{forward, backward, moves, reduces, updates}
)

func shadeOf(e trace.Event) shade {
	switch e.Verb {
	case trace.Move:
		return moves
	case trace.Reduce:
		return reduces
	case trace.Update:
		return updates
	}
	if strings.Contains(e.Name, "forward") {
		return forward
	}
	return backward
}

// planShown plans an iteration and forecasts when each instruction runs.
func planShown() (*plan.Plan, []trace.Event, error) {
	m, err := spillway.Open(shownModel)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	here, err := machine.Parse(shownMachine)
	if err != nil {
		return nil, nil, err
	}
	job, err := m.Plan(spillway.Options{Task: spillway.Train, Precision: dtype.BF16, MicroBatchSize: shownBatch, Seq: shownSeq, Machine: here})
	if err != nil {
		return nil, nil, err
	}
	events, err := job.Timeline()
	return job.Plan, events, err
}

// lanes are the queues that did something, compute first.
func lanes(events []trace.Event) []trace.Lane {
	var list []trace.Lane
	for _, e := range events {
		if e.Lane.Queue != "" && e.Verb != trace.Free && !slices.Contains(list, e.Lane) {
			list = append(list, e.Lane)
		}
	}
	order := []string{"in", "compute", "out"}
	slices.SortFunc(list, func(a, b trace.Lane) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(slices.Index(order, a.Queue), slices.Index(order, b.Queue)))
	})
	return list
}

// laneTitles say in words what a queue does.
var laneTitles = map[string]string{"compute": "compute", "in": "copies to it", "out": "copies from it"}

func drawIteration(string) (string, error) {
	p, events, err := planShown()
	if err != nil {
		return "", err
	}
	const width, left, right, top, tall, step = 1240.0, 130.0, 24.0, 118.0, 38.0, 52.0
	list := lanes(events)
	last := int64(1)
	for _, e := range events {
		last = max(last, e.End)
	}
	scale := (width - left - right) / float64(last)
	var s svg
	s.text(20, 34, "start", "title", fmt.Sprintf("One training iteration of %s on a GPU that it does not fit", p.Model))
	s.text(20, 56, "start", "small", fmt.Sprintf("%s; batch %d × seq %d, bf16, AdamW", p.Strategy, shownBatch, shownSeq))
	s.text(20, 74, "start", "small", fmt.Sprintf("forecast: %.0f ms, bound by %s; %d instructions", p.Forecast.StepSeconds*1e3, p.Forecast.Bound, len(p.Instructions)))
	x := left
	for _, c := range allShades {
		if !slices.ContainsFunc(events, func(e trace.Event) bool { return e.Verb != trace.Free && shadeOf(e) == c }) {
			continue
		}
		s.rect(x, 88, 14, 14, 3, c.fill, "", "")
		s.text(x+20, 100, "start", "small", c.name)
		x += 50 + 6.4*float64(len(c.name))
	}
	bottom := top + step*float64(len(list))
	tick := niceTick(last)
	for at := int64(0); at <= last; at += tick {
		x := left + float64(at)*scale
		s.line(x, top-6, x, bottom, "#e4e7eb")
		s.text(x, bottom+16, "middle", "small", fmt.Sprintf("%g ms", float64(at)/1e6))
	}
	for i, l := range list {
		y := top + step*float64(i)
		s.text(20, y+17, "start", "", l.Device)
		s.text(20, y+32, "start", "small", laneTitles[l.Queue])
		for _, e := range events {
			if e.Lane != l || e.Verb == trace.Free {
				continue
			}
			x, w := left+float64(e.Start)*scale, max(float64(e.End-e.Start)*scale, 0.6)
			s.rect(x, y, max(w-0.5, 0.5), tall, min(3, w/3), shadeOf(e).fill, "", fmt.Sprintf("%s, %.2f to %.2f ms", e.Name, float64(e.Start)/1e6, float64(e.End)/1e6))
			if label := fmt.Sprint(e.Block); e.Block >= 0 && w > 7*float64(len(label)) {
				s.text(x+w/2, y+tall/2+4, "middle", "small on", label)
			}
		}
	}
	s.text(20, bottom+40, "start", "small", "Numbers are blocks. Drawn by tools/pictures from the plan's forecast; spillway plan --timeline writes the same for Perfetto. Hover over a bar to read what it is.")
	return s.picture(width, bottom+56, "One training iteration as a timeline"), nil
}

// niceTick is a round time of which about ten fit into all of it.
func niceTick(total int64) int64 {
	for tick := int64(1000); ; tick *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if total/(tick*n) <= 12 {
				return tick * n
			}
		}
	}
}
