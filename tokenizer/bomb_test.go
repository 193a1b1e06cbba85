package tokenizer

import (
	"fmt"
	"strings"
	"testing"

	"spillway/internal/bounded"
)

// Large files of small parts take memory in proportion to their size.
func TestLargeFiles(t *testing.T) {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for name, text := range map[string]string{
		"vocab":       file(`{"type": "BPE", "vocab": {` + many(`"%x":%d,`, 100_000) + `}, "merges": []}`),
		"unigram":     file(`{"type": "Unigram", "vocab": [` + many(`["%x",%d],`, 100_000) + `]}`),
		"added":       file(smallBPE, `"added_tokens": [`+many(`{"id":%d,"content":"%d"},`, 100_000)+`]`),
		"merges":      file(`{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [` + strings.Repeat(`"a b",`, 300_000) + `"a b"]}`),
		"steps":       file(smallBPE, `"normalizer": {"type": "Sequence", "normalizers": [`+strings.Repeat(`{"type":"NFC"},`, 100_000)+`{"type":"NFC"}]}`),
		"empty steps": file(smallBPE, `"normalizer": {"type": "Sequence", "normalizers": [`+strings.Repeat(`{},`, 500_000)+`{}]}`),
		"unknown":     file(smallBPE, `"x": [`+strings.Repeat(`{},`, 1_000_000)+`{}]`),
		"special":     file(smallBPE, `"post_processor": {"type": "TemplateProcessing", "single": [`+strings.Repeat(`{},`, 500_000)+`{}], "special_tokens": {}}`),
	} {
		bounded.Check(t, len(text), func() {
			if tok, err := Parse([]byte(text)); err == nil {
				_, _ = tok.Encode("a b c", true)
			}
		})
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
