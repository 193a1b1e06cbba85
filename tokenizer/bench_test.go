package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prose is the novel that fetch.sh downloads.
func prose(t testing.TB) string {
	t.Helper()
	path := filepath.Join("..", "testdata", "tokenizers", "prose.txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("%s is missing; tools/reference/tokenizers/fetch.sh fetches it", path)
	}
	return string(data)
}

func benchmarkEncode(b *testing.B, tok *Tokenizer, text string) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.Encode(text, false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode reads a novel; the figure to look at is MB/s of one core.
func BenchmarkEncode(b *testing.B) {
	for _, name := range realTokenizers {
		b.Run(name, func(b *testing.B) { benchmarkEncode(b, openReal(b, name), prose(b)) })
	}
}

// BenchmarkEncodeCorpus encodes the difficult texts with the small tokenizers; it needs no
// downloaded files.
func BenchmarkEncodeCorpus(b *testing.B) {
	text := strings.Repeat(strings.Join(readCorpus(b), "\n"), 4)
	for _, name := range tinyNames(b) {
		b.Run(name, func(b *testing.B) { benchmarkEncode(b, openTiny(b, name), text) })
	}
}

// BenchmarkEncodeOneWord encodes a megabyte without a place to split it.
func BenchmarkEncodeOneWord(b *testing.B) {
	for _, name := range realTokenizers {
		b.Run(name, func(b *testing.B) {
			benchmarkEncode(b, openReal(b, name), strings.Repeat("incomprehensibilities", 50_000))
		})
	}
}

// BenchmarkDecode turns the ids of a novel back into it.
func BenchmarkDecode(b *testing.B) {
	for _, name := range realTokenizers {
		b.Run(name, func(b *testing.B) {
			tok, text := openReal(b, name), prose(b)
			ids, err := tok.Encode(text, false)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Decode(ids, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen reads the files.
func BenchmarkOpen(b *testing.B) {
	for _, name := range realTokenizers {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				openReal(b, name)
			}
		})
	}
}
