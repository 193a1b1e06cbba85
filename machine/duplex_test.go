package machine

import (
	"encoding/json"
	"strings"
	"testing"
)

// A link is described by what both its directions carry together; the word half-duplex is
// the one that takes turns.
func TestDuplexIsDescribed(t *testing.T) {
	for text, want := range map[string]Bidirectional{
		"gpu:24GiB": linkBidirectional, "gpu:24GiB@half-duplex": HalfDuplex, "gpu:24GiB@duplex=50%": HalfDuplex,
		"gpu:24GiB@duplex=0.75": 0.75, "h200@duplex=91.66%": 0.9166, "cpu:4GiB": FullDuplex,
	} {
		m := parse(t, text)
		if got := m.Devices[0].Link.Bidirectional; got != want {
			t.Errorf("%s has the duplex %v, want %v", text, got, want)
		}
		if again := parse(t, m.String()).Devices[0].Link.Bidirectional; again != want {
			t.Errorf("%s is written as %s, which has the duplex %v", text, m, again)
		}
	}
	for text, why := range map[string]string{
		"gpu:24GiB@duplex=40%": "one way at a time", "gpu:24GiB@duplex=110%": "between", "gpu:24GiB@duplex=much": "like 92%",
		"gpu:24GiB@half-duplex/duplex=90%": "twice",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s gives %v, want %q", text, err, why)
		}
	}
}

// Machines written when links were duplex or not are read as they were meant.
func TestOldMachinesHaveDuplex(t *testing.T) {
	for text, want := range map[string]Bidirectional{"true": FullDuplex, "false": HalfDuplex, "0.92": 0.92} {
		var l Link
		if err := json.Unmarshal([]byte(`{"in":1,"out":1,"duplex":`+text+`}`), &l); err != nil || l.Bidirectional != want {
			t.Errorf("%s is read as %v (%v)", text, l.Bidirectional, err)
		}
	}
}
