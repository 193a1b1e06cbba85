package generate

import "strings"

// stopFinder finds stop strings in a text that comes in pieces.
type stopFinder struct {
	stops []string
	held  string // the end of the text, which may be the beginning of a stop string
}

// push takes more text. It returns what is certain not to be part of a stop string, and the
// stop string that ended the text, "" for none. Of several the one that begins first counts,
// and of those that begin in one place the one given first.
func (f *stopFinder) push(text string) (certain, stop string) {
	if len(f.stops) == 0 {
		return text, ""
	}
	f.held += text
	at := -1
	for _, s := range f.stops {
		if i := strings.Index(f.held, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	if at < 0 {
		at = len(f.held) - f.begun()
	}
	certain = f.held[:at]
	if f.held = f.held[at:]; stop != "" {
		f.held = ""
	}
	return certain, stop
}

// begun is the length of the longest end of the text that a stop string begins with.
func (f *stopFinder) begun() (n int) {
	for _, s := range f.stops {
		for k := min(len(s)-1, len(f.held)); k > n; k-- {
			if strings.HasSuffix(f.held, s[:k]) {
				n = k
			}
		}
	}
	return n
}

// flush returns what was held back, when the text ends.
func (f *stopFinder) flush() string {
	held := f.held
	f.held = ""
	return held
}
