package tokenizer

import (
	"slices"
	"strings"
)

// Stream decodes ids as they are generated. It never returns half a character: a token
// that ends within one is held back until the rest has come. Its results together are
// what Decode returns for all ids, except where bytes are not UTF-8. It must not be
// used concurrently.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	// Decoders look at neighbours (a space is dropped at the start of a text), so
	// the ids last shown are decoded again together with the new ones.
	shown     []int32
	shownText string
	pending   []int32 // ids not shown yet
}

// maxPending is how many ids may wait for a character to be completed. More than that
// means that the text has many U+FFFD or is not text.
const maxPending = 16

// maxPartialBytes is the largest number of bytes, and so of ids, of an incomplete
// character.
const maxPartialBytes = 3

// Stream returns a decoder of one text, id by id. skipSpecial is as for Decode.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push takes the next id and returns the text that it completes, often "".
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

// Flush ends the text: it returns what was held back, and resets the stream.
func (s *Stream) Flush() (string, error) {
	text, err := s.window(len(s.pending))
	if err == nil {
		text, err = s.show(text, len(s.pending))
	}
	*s = Stream{t: s.t, skipSpecial: s.skipSpecial}
	return text, err
}

// window decodes the ids shown last and the first n pending ones.
func (s *Stream) window(n int) (string, error) {
	return s.t.Decode(slices.Concat(s.shown, s.pending[:n]), s.skipSpecial)
}

// show returns what is new in the text of a window. Its n pending ids become the
// context of the next window.
func (s *Stream) show(text string, n int) (string, error) {
	if n == 0 {
		return "", nil
	}
	shownText, err := s.t.Decode(s.pending[:n], s.skipSpecial)
	if err != nil {
		return "", err
	}
	added, ok := strings.CutPrefix(text, s.shownText)
	if !ok { // invalid bytes changed text that had looked complete
		added = shownText
	}
	s.shown, s.shownText, s.pending = s.pending[:n:n], shownText, s.pending[n:]
	return added, nil
}

// showComplete shows the text of the pending ids up to a place that does not divide a
// character, and leaves the few ids after it pending.
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
