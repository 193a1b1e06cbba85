package data

import (
	"fmt"
	"math"
	"sort"
)

// Split divides a source at random into one to train on and one to evaluate on, which
// gets the given fraction of the documents. Documents that come from one conversation
// stay together, because each repeats the turns of the one before. The same seed gives
// the same split.
func Split(s Source, fraction float64, seed uint64) (train, eval Source, err error) {
	if !(fraction >= 0 && fraction <= 1) {
		return nil, nil, fmt.Errorf("splitting off a fraction of %v for evaluation: it must be between 0 and 1", fraction)
	}
	if starts := groups(s); starts != nil {
		train, eval = splitGroups(s, starts, fraction, seed)
		return train, eval, nil
	}
	n := s.Len()
	evaluated := int64(math.Round(float64(n) * fraction))
	o := newOrder(n, seed, splitEpoch)
	return recordSelection{s, o, 0, n - evaluated}, recordSelection{s, o, n - evaluated, evaluated}, nil
}

// splitEpoch is an epoch that no run reaches, so that the split has an order of its own.
const splitEpoch = math.MaxUint64

// recordSelection is documents first to first+n-1 of another source, in a given order.
type recordSelection struct {
	from  Source
	order order
	first int64
	n     int64
}

func (p recordSelection) Len() int64 { return p.n }

func (p recordSelection) Document(i int64) (Document, error) {
	if err := inRange(i, p.n); err != nil {
		return Document{}, err
	}
	return p.from.Document(p.order.at(p.first + i))
}

// lineGrouper is a source that may make several documents of one line of a file.
// sameLine reports whether document i comes from the same line as the one before it.
type lineGrouper interface{ sameLine(i int64) bool }

func (s tokenized) sameLine(i int64) bool { return s.records.sameLine(i) }

func (c concat) sameLine(i int64) bool {
	k := sort.Search(len(c.ends), func(k int) bool { return i < c.ends[k] })
	s, ok := c.sources[k].(lineGrouper)
	within := i - (c.ends[k] - c.sources[k].Len())
	return ok && within > 0 && s.sameLine(within)
}

// groups returns the first document of each line, or nil if every line has only one.
func groups(s Source) (starts []int64) {
	f, ok := s.(lineGrouper)
	if !ok {
		return nil
	}
	for i := range s.Len() {
		if !f.sameLine(i) {
			starts = append(starts, i)
		}
	}
	if int64(len(starts)) == s.Len() {
		return nil
	}
	return starts
}

// documentList is a list of documents of another source.
type documentList struct {
	from Source
	list []int64
}

func (l documentList) Len() int64 { return int64(len(l.list)) }

func (l documentList) Document(i int64) (Document, error) {
	if err := inRange(i, l.Len()); err != nil {
		return Document{}, err
	}
	return l.from.Document(l.list[i])
}

// splitGroups is Split for lines that have several documents: it draws lines. starts is
// the first document of each line.
func splitGroups(s Source, starts []int64, fraction float64, seed uint64) (train, eval documentList) {
	n := int64(len(starts))
	trained := n - int64(math.Round(float64(n)*fraction))
	o := newOrder(n, seed, splitEpoch)
	train.from, eval.from = s, s
	for place := range n {
		g, part := o.at(place), &train
		if place >= trained {
			part = &eval
		}
		end := s.Len()
		if g+1 < n {
			end = starts[g+1]
		}
		for i := starts[g]; i < end; i++ {
			part.list = append(part.list, i)
		}
	}
	return train, eval
}
