package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestScannersMatchTheirPatterns compares each hand-written scanner with the regex
// engine on the pattern it stands for.
func TestScannersMatchTheirPatterns(t *testing.T) {
	texts := append(readCorpus(t), nastyTexts(4000)...)
	for expr, scan := range scanners {
		re := compileRegex(expr)
		for _, text := range texts {
			if got, want := matches(scan, text), matches(re, text); !slices.Equal(got, want) {
				t.Fatalf("%s\n of %q\n got %q\nwant %q", expr, text, got, want)
			}
		}
	}
}

func matches(p pattern, text string) (found []string) {
	p.find(text, func(start, end int) { found = append(found, text[start:end]) })
	return found
}

// alphabet has a few characters of every kind that a pattern distinguishes, and those that
// decide where a match ends.
var alphabet = []string{
	" ", " ", " ", "\n", "\r", "\t", "\u00a0", "\u3000", "\u0085", "\u2028", "a", "b", "Z", "é", "ß", "ſ", "中", "א", "ก", "𐐀", "\U0002ebf0",
	"'", "'", "s", "S", "t", "m", "d", "l", "L", "r", "e", "v", "V", "0", "1", "9", "½", "٣", "Ⅳ", "𝟏", "\U00010d40",
	"!", "-", ".", "_", "€", "😀", "\u0301", "\u200d", "\u200b", "\ufffd", "\x00", "ª", "ǅ", "\u1c89",
}

// nastyTexts are short random texts, the same ones every time.
func nastyTexts(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		for range 1 + random.IntN(12) {
			b.WriteString(strings.Repeat(alphabet[random.IntN(len(alphabet))], 1+random.IntN(4)*random.IntN(2)))
		}
		texts[i] = b.String()
	}
	return texts
}

func TestClassesMatchTheLibrary(t *testing.T) {
	var want map[string][][2]rune
	readFixture(t, "classes.json.gz", &want)
	names := map[string]class{"letter": letter, "number": number, "space": space}
	expected := make([]class, 0x110000)
	for name, ranges := range want {
		for _, r := range ranges {
			for c := r[0]; c <= r[1]; c++ {
				expected[c] = names[name]
			}
		}
	}
	for c, want := range expected {
		if want == end {
			want = other
		}
		if 0xd800 <= c && c < 0xe000 {
			continue // half a character
		}
		if got, n := classAt(string(rune(c))); got != want || n != len(string(rune(c))) {
			t.Errorf("classAt(%U) = %d with %d bytes, want %d", c, got, n, want)
		}
	}
}

func TestUnsupportedPatternsAreRefused(t *testing.T) {
	for expr, reason := range map[string]string{
		`[a-z`:                     "pattern",
		`(`:                        "pattern",
		`a{2,1}`:                   "pattern",
		`\p{Nonsense}`:             "pattern",
		`[a[b]]`:                   "class within a class",
		`[a&&b]`:                   "class within a class",
		`[]a]`:                     "starts with ]",
		`\h+`:                      `\h`,
		`[\W]`:                     `\W`,
		`\p{N}{1,3}+`:              "not supported",
		`\pL+`:                     "without braces",
		`a{,3}`:                    "not supported",
		`(?m:.)`:                   "not supported",
		strings.Repeat("a", 1<<16): "at most",
		strings.Repeat("(", 4000):  "pattern",
		`(?<x>a)(?<x`:              "pattern",
		`a\`:                       "pattern",
	} {
		var err error
		func() {
			defer recoverFailure(&err, "compile")
			compileRegex(expr)
		}()
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("compileRegex(%.40q) = %v, want an error that says %q", expr, err, reason)
		}
	}
}
