package data

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// encodeTokens writes the documents of a source as a token file.
func encodeTokens(t *testing.T, s Source, width int) string {
	t.Helper()
	var raw []byte
	for d, err := range sourceDocuments(s) {
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range d.Tokens {
			raw = append(raw, binary.LittleEndian.AppendUint32(nil, uint32(token))[:width]...)
		}
	}
	return string(raw)
}

func TestTokenFiles(t *testing.T) {
	end := int32(9)
	for _, width := range []int{2, 4} {
		source := made{4, 1, 30, 7}
		f, err := OpenTokens(file(t, encodeTokens(t, source, width)), TokenOptions{Width: width, End: &end, PieceTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var read, want []int32
		for d, err := range sourceDocuments(f) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, d.Tokens...)
		}
		for d := range sourceDocuments(source) {
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
	for d := range sourceDocuments(f) {
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
}

// A token file is indexed in blocks, whose borders must not show.
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
	for d, err := range sourceDocuments(f) {
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
