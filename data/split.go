package data

import (
	"fmt"
	"math"
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
	trained := n - int64(math.Round(float64(n)*fraction))
	o := newOrder(n, seed, splitEpoch)
	return selection{s, trained, o.at}, selection{s, n - trained, func(i int64) int64 { return o.at(trained + i) }}, nil
}

// Cut divides the only document of a source, a text, into its beginning to train on and its end to evaluate on,
// which gets the given fraction of the tokens. A conversation is not divided: ok is false.
func Cut(s Source, fraction float64) (train, eval Source, ok bool, err error) {
	d, err := s.Document(0)
	if err != nil || d.InLoss != nil {
		return nil, nil, false, err
	}
	n := len(d.Tokens)
	trained := n - int(math.Round(float64(n)*fraction))
	if trained < 2 || n-trained < 2 {
		return nil, nil, false, fmt.Errorf("splitting off a fraction of %v of a text of %d tokens: %d are left to train on and %d to evaluate on, and either needs 2", fraction, n, trained, n-trained)
	}
	return cut{s, 0, trained}, cut{s, trained, n}, true, nil
}

// cut is a range of the tokens of the only document of a source.
type cut struct {
	Source
	from, to int
}

func (c cut) Document(i int64) (Document, error) {
	d, err := c.Source.Document(i)
	if err == nil {
		d.Tokens = d.Tokens[c.from:c.to]
	}
	return d, err
}

// splitEpoch is an epoch that no run reaches, so that the split has an order of its own.
const splitEpoch = math.MaxUint64

// lineGrouper is a source that may make several documents of one line of a file.
// sameLine reports whether document i comes from the same line as the one before it.
type lineGrouper interface{ sameLine(i int64) bool }

func (s tokenized) sameLine(i int64) bool { return s.records.sameLine(i) }

func (c concat) sameLine(i int64) bool {
	s, i := c.find(i)
	g, ok := s.(lineGrouper)
	return ok && i > 0 && g.sameLine(i)
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

// splitGroups is Split for lines that have several documents: it draws lines. starts is
// the first document of each line.
func splitGroups(s Source, starts []int64, fraction float64, seed uint64) (train, eval Source) {
	n := int64(len(starts))
	trained := n - int64(math.Round(float64(n)*fraction))
	o := newOrder(n, seed, splitEpoch)
	starts = append(starts, s.Len())
	var lists [2][]int64
	for place := range n {
		list := &lists[0]
		if place >= trained {
			list = &lists[1]
		}
		g := o.at(place)
		for i := starts[g]; i < starts[g+1]; i++ {
			*list = append(*list, i)
		}
	}
	listed := func(list []int64) Source {
		return selection{s, int64(len(list)), func(i int64) int64 { return list[i] }}
	}
	return listed(lists[0]), listed(lists[1])
}
