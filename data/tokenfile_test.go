package data

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestTokenFiles(t *testing.T) {
	end := int32(9)
	for _, width := range []int{2, 4} {
		source := made{4, 1, 30, 7}
		var raw bytes.Buffer
		if err := writeTokens(&raw, allDocuments(source), width); err != nil {
			t.Fatal(err)
		}
		if raw.Len() != 42*width {
			t.Fatalf("%d bytes for 42 tokens of %d", raw.Len(), width)
		}
		f, err := OpenTokens(file(t, raw.String()), TokenOptions{Width: width, End: &end, PieceTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var read, want []int32
		for d, err := range allDocuments(f) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, d.Tokens...)
		}
		for d := range allDocuments(source) {
			want = append(want, d.Tokens...)
		}
		if !slices.Equal(read, want) || f.Len() != 3 { // cut after 20 twice: token 9 of 2000.. is 2009, not 9
			t.Errorf("width %d: %d documents, %v", width, f.Len(), read)
		}
	}
	raw := "\x01\x00\x09\x00\x09\x00\x05\x00\x06\x00"
	f, err := OpenTokens(file(t, raw), TokenOptions{Width: 2, End: &end})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for d := range allDocuments(f) {
		got = append(got, fmt.Sprint(d.Tokens))
	}
	if s := strings.Join(got, " "); s != "[1 9] [9] [5 6]" {
		t.Errorf("documents by end token: %s", s)
	}
	if _, err := f.Document(3); err == nil {
		t.Error("document 3 of 3 was read")
	}
	for content, o := range map[string]TokenOptions{
		"abc":              {Width: 2},
		"abcd":             {Width: 3},
		"\xff\xff\xff\xff": {Width: 4},
		"\x07\x00\x08\x00": {Width: 2, Vocabulary: 8},
	} {
		if _, err := OpenTokens(file(t, content), o); err == nil {
			t.Errorf("%q with %+v was accepted", content, o)
		}
	}
	many := make(made, 67)
	many[66] = 1 // its token is number 66000
	if writeTokens(io.Discard, allDocuments(many), 2) == nil || writeTokens(io.Discard, allDocuments(many), 4) != nil || writeTokens(io.Discard, allDocuments(many), 3) == nil {
		t.Error("token 66000 fits in 4 bytes, not in 2; 3 is no width")
	}
}

// The blocks a token file is indexed in must leave no seam.
func TestTokenFilesAcrossBlocks(t *testing.T) {
	const n = tokenBlock/2*2 + 777
	raw := make([]byte, 2*n)
	for i := range n {
		raw[2*i], raw[2*i+1] = byte(i), byte(i>>8)
	}
	end := int32(1000)
	f, err := OpenTokens(file(t, string(raw)), TokenOptions{Width: 2, End: &end, PieceTokens: 50000})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := 0
	for d, err := range allDocuments(f) {
		if err != nil {
			t.Fatal(err)
		}
		for k, token := range d.Tokens {
			if token != int32(uint16(at+k)) || token == end && k+1 != len(d.Tokens) {
				t.Fatalf("token %d is %d", at+k, token)
			}
		}
		if at += len(d.Tokens); len(d.Tokens) > 50000 {
			t.Fatalf("a document of %d tokens", len(d.Tokens))
		}
	}
	if at != n {
		t.Errorf("%d tokens, want %d", at, n)
	}
}
