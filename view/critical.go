package view

import (
	"strings"
	"unicode"

	"spillway/plan"
)

// waits finds what each instruction waited for, and the critical path: the chain of
// instructions, each begun when the one before it ended, that ends with the last one of the
// step. Times are those that were measured, or where none were those of the forecast.
func (t *Timeline) waits(instructions []plan.Instruction) {
	type place struct{ lane, bar int }
	places := make(map[int]place)
	for l := range t.Lanes {
		for b := range t.Lanes[l].Bars {
			places[t.Lanes[l].Bars[b].Instruction] = place{l, b}
		}
	}
	times := func(b *Bar) (start, end int64) {
		if t.Step > 0 {
			return b.MeasuredAt, b.MeasuredEnd
		}
		return b.Start, b.End
	}
	var last *Bar
	for l := range t.Lanes {
		for i := range t.Lanes[l].Bars {
			b := &t.Lanes[l].Bars[i]
			b.After = -1
			latest := int64(-1)
			consider := func(other *Bar) {
				if _, end := times(other); end > latest {
					latest, b.After = end, other.Instruction
				}
			}
			if i > 0 {
				consider(&t.Lanes[l].Bars[i-1])
			}
			if b.Instruction < len(instructions) {
				for _, a := range instructions[b.Instruction].After {
					if at, has := places[a]; has {
						consider(&t.Lanes[at.lane].Bars[at.bar])
					}
				}
			}
			_, end := times(b)
			if last == nil {
				last = b
			} else if _, most := times(last); end > most {
				last = b
			}
		}
	}
	for last != nil && !last.Critical {
		last.Critical = true
		at, has := places[last.After]
		if !has {
			return
		}
		last = &t.Lanes[at.lane].Bars[at.bar]
	}
}

// Fold is a stretch of a step in which the same instructions come again and again, such as those
// of equal blocks. A picture shows some of them and leaves the rest out.
type Fold struct {
	Hidden  int   `json:"hidden"`   // how many repetitions are left out
	Period  int   `json:"period"`   // instructions of the lane in each of them
	From    int64 `json:"from"`     // what is left out of the forecast, in nanoseconds
	To      int64 `json:"to"`       //
	FromRan int64 `json:"from_ran"` // and of the measured step
	ToRan   int64 `json:"to_ran"`   //
}

const (
	// A stretch is folded where it has so many repetitions; the first two and the last stay.
	minRepeats, shownRepeats = 12, 3
	// maxPeriod is the most instructions of a lane that may repeat.
	maxPeriod = 96
	// leastFolded is the share of the step that must go, or leaving it out helps nobody.
	leastFolded = 0.15
)

// folds finds what repeats, in the lane that computes most.
func (t *Timeline) folds() (list []Fold) {
	var lane *Lane
	for i := range t.Lanes {
		if l := &t.Lanes[i]; l.Queue == string(plan.Compute) && (lane == nil || len(l.Bars) > len(lane.Bars)) {
			lane = l
		}
	}
	if lane == nil {
		return nil
	}
	keys, ids := make([]int, len(lane.Bars)), map[string]int{}
	names := make([]string, len(t.Names))
	for i, n := range t.Names {
		names[i] = strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, n)
	}
	for i, b := range lane.Bars {
		key := b.Verb.String() + names[b.Name] + num(float64(b.Bytes))
		id, has := ids[key]
		if !has {
			id = len(ids)
			ids[key] = id
		}
		keys[i] = id
	}
	for at := 0; at < len(keys); {
		period, repeats := repetition(keys[at:])
		if repeats < minRepeats {
			at++
			continue
		}
		from, to := lane.Bars[at+2*period], lane.Bars[at+(repeats-1)*period]
		f := Fold{repeats - shownRepeats, period, from.Start, to.Start, from.MeasuredAt, to.MeasuredAt}
		if float64(f.To-f.From)/1e9 >= leastFolded*t.ForecastSeconds && float64(f.ToRan-f.FromRan)/1e9 >= leastFolded*t.MeasuredSeconds {
			list = append(list, f)
		}
		at += repeats * period
	}
	return list
}

// repetition is the shortest beginning of a list that repeats often enough, and how often.
func repetition(keys []int) (period, repeats int) {
	for period := 1; period <= min(maxPeriod, len(keys)/minRepeats); period++ {
		same := 0
		for same+period < len(keys) && keys[same] == keys[same+period] {
			same++
		}
		if repeats := same/period + 1; repeats >= minRepeats {
			return period, repeats
		}
	}
	return 0, 0
}
