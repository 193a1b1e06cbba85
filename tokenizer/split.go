package tokenizer

import "encoding/json"

// behavior says what happens to the parts of a text that match a pattern.
type behavior int

const (
	removed            behavior = iota // they are dropped
	isolated                           // each is a part of its own
	contiguous                         // neighbouring matches join
	mergedWithPrevious                 // they end the part before them
	mergedWithNext                     // they start the part after them
)

var behaviors = map[string]behavior{
	"Removed": removed, "Isolated": isolated, "Contiguous": contiguous,
	"MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext,
}

func parseBehavior(name string) behavior {
	b, ok := behaviors[name]
	if !ok {
		panic(failf("split behavior %s is not supported", excerpt(name)))
	}
	return b
}

// joins reports whether a part belongs to the one before it. before and now say which
// of the two is a match.
func (b behavior) joins(before, now bool) bool {
	switch b {
	case contiguous:
		return before == now
	case mergedWithPrevious:
		return now && !before
	case mergedWithNext:
		return before && !now
	}
	return false
}

// splitter splits by a pattern.
type splitter struct {
	pattern  pattern
	behavior behavior
	invert   bool // swap the roles of matches and the text between them
}

func parseSplit(raw json.RawMessage) preTokenizer {
	file := parsed(raw, struct {
		Pattern  filePattern `json:"pattern"`
		Behavior string      `json:"behavior"`
		Invert   bool        `json:"invert"`
	}{})
	behavior, p := parseBehavior(file.Behavior), file.Pattern.compile()
	if scan, ok := p.(scanner); ok && (behavior == isolated || behavior == removed && file.Invert) {
		return scan
	}
	return splitter{p, behavior, file.Invert}
}

func (c splitter) split(p piece, each func(piece)) {
	var part struct {
		start, end int  // it may still grow
		matched    bool // whether the last thing added to it was a match
	}
	flush := func() {
		if part.start < part.end {
			each(piece{p.text[part.start:part.end], p.first && part.start == 0})
		}
		part.start = part.end
	}
	add := func(from, to int, match bool) {
		switch {
		case match && c.behavior == removed:
			flush()
			return
		case part.start == part.end || !c.behavior.joins(part.matched, match):
			flush()
			part.start = from
		}
		part.end, part.matched = to, match
	}
	done := 0
	c.pattern.find(p.text, func(from, to int) {
		if done < from {
			add(done, from, c.invert)
		}
		done = to
		add(from, to, !c.invert)
	})
	if done < len(p.text) {
		add(done, len(p.text), c.invert)
	}
	flush()
}
