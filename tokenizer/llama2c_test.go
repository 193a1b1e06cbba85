package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/internal/reference"
)

// llama2c writes a vocabulary: the usual first tokens, then the given ones, each
// with a lower score than the one before.
func llama2c(tokens ...string) []byte {
	all := []string{"<unk>", "\n<s>\n", "\n</s>\n"}
	for b := range 256 {
		all = append(all, fmt.Sprintf("<0x%02X>", b))
	}
	data := binary.LittleEndian.AppendUint32(nil, 32)
	for i, token := range append(all, tokens...) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(-float32(i)))
		data = binary.LittleEndian.AppendUint32(data, uint32(len(token)))
		data = append(data, token...)
	}
	return data
}

func TestLlama2C(t *testing.T) {
	tok, err := ParseLlama2C(llama2c(" t", "he", " the", "re", " there", " ", "t", "h", "e", "r"))
	if err != nil {
		t.Fatal(err)
	}
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			t.Fatalf("no token %q", token)
		}
		return id
	}
	checkEncode(t, tok, "", []int32{})
	checkEncode(t, tok, "the", []int32{id(" the")})
	checkEncode(t, tok, "there the", []int32{id(" there"), id(" the")})
	checkEncode(t, tok, "é", []int32{id(" "), id("<0xC3>"), id("<0xA9>")})
	for _, text := range []string{"", "the", "there the", "é", "  the\n", "<s>", "\x00"} {
		ids, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := tok.Decode(ids, true); err != nil || back != text || ids[0] != llama2cBegin {
			t.Errorf("%q comes back from %v as %q %v", text, ids, back, err)
		}
	}
}

func TestBadLlama2CFilesAreRefused(t *testing.T) {
	good := llama2c("a", "b")
	set := func(at int, value uint32) []byte {
		data := slices.Clone(good)
		binary.LittleEndian.PutUint32(data[at:], value)
		return data
	}
	for what, data := range map[string][]byte{
		"nothing":           nil,
		"a length alone":    good[:4],
		"cut in a token":    good[:len(good)-1],
		"cut before a text": good[:len(good)-5],
		"no bytes":          good[:100],
		"huge longest":      set(0, 1<<30),
		"huge token":        set(8, 1<<31),
		"longer than said":  set(8, 33),
		"no number":         set(4, math.Float32bits(float32(math.NaN()))),
		"the same twice":    llama2c("a", "a"),
		"not UTF-8":         llama2c("\xff"),
	} {
		if _, err := ParseLlama2C(data); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// TestStories260K compares with the ids that the model's reference run used.
func TestStories260K(t *testing.T) {
	folder := reference.Asset(t, "stories260k")
	raw, err := os.ReadFile(filepath.Join(folder, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Prompt []int32 `json:"prompt_ids"`
		Greedy []int32 `json:"greedy_ids"`
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	tok, err := OpenLlama2C(filepath.Join(folder, "tok512.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.Encode("Once upon a time", true); err != nil || !slices.Equal(got, want.Prompt) {
		t.Errorf("the prompt is %v %v, want %v", got, err, want.Prompt)
	}
	story, err := tok.Decode(want.Greedy, true)
	if err != nil || !strings.HasPrefix(story, "Once upon a time, there was a little girl named Lily.") {
		t.Errorf("the story is %q %v", story, err)
	}
}
