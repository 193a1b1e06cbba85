package machine

import (
	"strings"
	"testing"
)

// A link is described by what both its directions carry together; the word half-duplex is
// the one that takes turns.
func TestBidirectionalIsDescribed(t *testing.T) {
	for text, want := range map[string]Bidirectional{
		"gpu:24GiB": linkBidirectional, "gpu:24GiB@half-duplex": HalfDuplex, "gpu:24GiB@bidirectional=50%": HalfDuplex,
		"gpu:24GiB@bidirectional=0.75": 0.75, "h200@bidirectional=91.66%": 0.9166, "cpu:4GiB": FullDuplex,
	} {
		m := parse(t, text)
		if got := m.Devices[0].Link.Bidirectional; got != want {
			t.Errorf("%s carries %v both ways, want %v", text, got, want)
		}
		if again := parse(t, m.String()).Devices[0].Link.Bidirectional; again != want {
			t.Errorf("%s is written as %s, which carries %v", text, m, again)
		}
	}
	for text, why := range map[string]string{
		"gpu:24GiB@bidirectional=40%": "one at a time", "gpu:24GiB@bidirectional=110%": "between", "gpu:24GiB@bidirectional=much": "like 92%",
		"gpu:24GiB@half-duplex/bidirectional=90%": "twice",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s gives %v, want %q", text, err, why)
		}
	}
}
