package tokenizer

import "strings"

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
	held      []int32 // ids not shown yet
}

// maxHeld is how many ids may wait for a character to be completed. A character is
// four bytes at most; a longer wait means the ids are not text.
const maxHeld = 16

// Stream starts decoding a text id by id. skipSpecial is as for Decode.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push takes the next id and returns the text that is complete with it, often "".
func (s *Stream) Push(id int32) (string, error) {
	if s.skipSpecial && s.t.Special(id) {
		return "", nil
	}
	s.held = append(s.held, id)
	text, err := s.window()
	if err != nil {
		s.held = s.held[:len(s.held)-1]
		return "", err
	}
	if strings.HasSuffix(text, "\uFFFD") && len(s.held) < maxHeld {
		return "", nil
	}
	return s.show(text)
}

// Flush ends the text: it returns what was held back and starts anew.
func (s *Stream) Flush() (string, error) {
	text, err := s.window()
	if err == nil {
		text, err = s.show(text)
	}
	*s = Stream{t: s.t, skipSpecial: s.skipSpecial}
	return text, err
}

// window decodes the ids last shown and those held.
func (s *Stream) window() (string, error) {
	return s.t.Decode(append(append([]int32{}, s.shown...), s.held...), s.skipSpecial)
}

// show returns what of the window's text is new and makes it the next context.
func (s *Stream) show(text string) (string, error) {
	if len(s.held) == 0 {
		return "", nil
	}
	shownText, err := s.t.Decode(s.held, s.skipSpecial)
	if err != nil {
		return "", err
	}
	fresh, ok := strings.CutPrefix(text, s.shownText)
	if !ok { // a broken byte run changed what had looked complete
		fresh = shownText
	}
	s.shown, s.shownText, s.held = s.held, shownText, nil
	return fresh, nil
}
