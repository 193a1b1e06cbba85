package tokenizer

import (
	"slices"
	"strings"
)

// Stream decodes ids as they are generated. It never returns half a character: a
// token that ends within one is held until the rest has come. What it returns, put
// together, is what Decode makes of all the ids, except for byte sequences that are
// not UTF-8. A Stream is for one goroutine.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	// Decoders look at neighbours (a space is dropped at the start of a text), so
	// the ids last shown are decoded again together with the new ones.
	shown     []int32
	shownText string
	pending   []int32 // ids not shown yet
}

// maxHeld is how many ids may wait for a character to be completed. A longer wait
// means that the text is full of U+FFFD or no text at all.
const maxPending = 16

// maxBroken is how many bytes, and so ids, an unfinished character has at most.
const maxPartialBytes = 3

// Stream starts decoding a text id by id. skipSpecial is as for Decode.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push takes the next id and returns the text that is complete with it, often "".
func (s *Stream) Push(id int32) (string, error) {
	if s.skipSpecial && s.t.Special(id) {
		return "", nil
	}
	s.pending = append(s.pending, id)
	text, err := s.window(len(s.pending))
	if err != nil {
		s.pending = s.pending[:len(s.pending)-1]
		return "", err
	}
	if !strings.HasSuffix(text, "\uFFFD") {
		return s.show(text, len(s.pending))
	}
	if len(s.pending) < maxPending {
		return "", nil
	}
	return s.showComplete(text)
}

// Flush ends the text: it returns what was held back and starts anew.
func (s *Stream) Flush() (string, error) {
	text, err := s.window(len(s.pending))
	if err == nil {
		text, err = s.show(text, len(s.pending))
	}
	*s = Stream{t: s.t, skipSpecial: s.skipSpecial}
	return text, err
}

// window decodes the ids last shown and the first n of those held.
func (s *Stream) window(n int) (string, error) {
	return s.t.Decode(slices.Concat(s.shown, s.pending[:n]), s.skipSpecial)
}

// show returns what is new in the text of a window and makes its n held ids the
// context of the next.
func (s *Stream) show(text string, n int) (string, error) {
	if n == 0 {
		return "", nil
	}
	shownText, err := s.t.Decode(s.pending[:n], s.skipSpecial)
	if err != nil {
		return "", err
	}
	fresh, ok := strings.CutPrefix(text, s.shownText)
	if !ok { // a broken byte run changed what had looked complete
		fresh = shownText
	}
	s.shown, s.shownText, s.pending = s.pending[:n:n], shownText, s.pending[n:]
	return fresh, nil
}

// showPart shows the text of the held ids up to a place where no character is cut,
// and holds on to the few behind it.
func (s *Stream) showComplete(text string) (string, error) {
	for n := len(s.pending) - maxPartialBytes; n > 0; n-- {
		front, err := s.window(n)
		if err != nil {
			return "", err
		}
		behind, err := s.t.Decode(s.pending[n:], s.skipSpecial)
		if err != nil {
			return "", err
		}
		if front+behind == text {
			return s.show(front, n)
		}
	}
	return s.show(text, len(s.pending))
}
