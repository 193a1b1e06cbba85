package tokenizer

import (
	"encoding/json"
	"fmt"
)

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

func parseBehavior(name string) (behavior, error) {
	b, ok := behaviors[name]
	if !ok {
		return 0, fmt.Errorf("split behavior %s is not supported", excerpt(name))
	}
	return b, nil
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

func parseSplit(raw json.RawMessage) (preTokenizer, error) {
	var file struct {
		Pattern  filePattern `json:"pattern"`
		Behavior string      `json:"behavior"`
		Invert   bool        `json:"invert"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	behavior, err := parseBehavior(file.Behavior)
	if err != nil {
		return nil, err
	}
	p, err := file.Pattern.compile()
	if err != nil {
		return nil, err
	}
	if scan, ok := p.(scanner); ok && (behavior == isolated || behavior == removed && file.Invert) {
		return scan, nil
	}
	return splitter{p, behavior, file.Invert}, nil
}

func (c splitter) split(p piece, each func(piece) error) error {
	j := spanJoiner{piece: p, behavior: c.behavior, each: each}
	done := 0
	err := c.pattern.find(p.text, func(start, end int) error {
		if done < start {
			if err := j.add(done, start, c.invert); err != nil {
				return err
			}
		}
		done = end
		return j.add(start, end, !c.invert)
	})
	if err == nil && done < len(p.text) {
		err = j.add(done, len(p.text), c.invert)
	}
	if err == nil {
		err = j.flush()
	}
	return err
}

// spanJoiner joins the parts of a piece that belong together.
type spanJoiner struct {
	piece      piece
	behavior   behavior
	each       func(piece) error
	start, end int  // the part that may still grow
	match      bool // whether the last thing added to it was a match
}

func (j *spanJoiner) add(start, end int, match bool) error {
	if match && j.behavior == removed {
		return j.flush()
	}
	if j.end > j.start && j.behavior.joins(j.match, match) {
		j.end, j.match = end, match
		return nil
	}
	err := j.flush()
	j.start, j.end, j.match = start, end, match
	return err
}

func (j *spanJoiner) flush() error {
	start, end := j.start, j.end
	j.start = end
	if start == end {
		return nil
	}
	return j.each(piece{j.piece.text[start:end], j.piece.first && start == 0})
}
