package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzReadHeader compares the reader with a second, naive one built on
// encoding/json, and writes back what was read.
func FuzzReadHeader(f *testing.F) {
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := ReadHeader(bytes.NewReader(file), int64(len(file)))
		naive, naiveErr := naiveRead(file)
		if (err == nil) != (naiveErr == nil) {
			t.Fatalf("the readers disagree: %v against %v", err, naiveErr)
		}
		if err != nil {
			return
		}
		compareNaive(t, h, naive)
		checkRewrite(t, h)
	})
}

func compareNaive(t *testing.T, h *Header, naive map[string]naiveTensor) {
	if len(h.Tensors) != len(naive) {
		t.Fatalf("%d tensors, the naive reader finds %d", len(h.Tensors), len(naive))
	}
	for _, x := range h.Tensors {
		got := naiveTensor{x.Type.Safetensors(), fmt.Sprint(x.Shape), x.Offset - h.start, x.Bytes}
		if got != naive[x.Name] {
			t.Fatalf("tensor %q is %v, to the naive reader %v", x.Name, got, naive[x.Name])
		}
	}
}

// checkRewrite lays the same tensors out anew: the result must read as the same set.
func checkRewrite(t *testing.T, h *Header) {
	again, err := Layout(h.Tensors, h.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = write(&out, again, func(x Info, w io.Writer) error {
		_, err := w.Write(make([]byte, x.Bytes))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	back, err := ReadHeader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatalf("what was written does not read: %v\n%q", err, out.Bytes())
	}
	if !maps.Equal(back.Metadata, h.Metadata) || !slices.EqualFunc(back.Tensors, again.Tensors, sameInfo) {
		t.Fatalf("wrote %v, read %v", again, back)
	}
}

func sameInfo(a, b Info) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Shape.Equal(b.Shape) && a.Offset == b.Offset && a.Bytes == b.Bytes
}

// naiveTensor is what the naive reader finds; its begin counts from the data.
type naiveTensor struct {
	dtype, shape string
	begin, bytes int64
}

var errNaive = errors.New("refused by the naive reader")

// naiveRead reads a file the slow and obvious way: JSON into maps, big integers, a
// mark on every byte of data.
func naiveRead(file []byte) (map[string]naiveTensor, error) {
	if len(file) < 8 {
		return nil, errNaive
	}
	n := binary.LittleEndian.Uint64(file)
	if n == 0 || n > uint64(len(file)-8) {
		return nil, errNaive
	}
	header, data := file[8:8+n], file[8+n:]
	var top map[string]json.RawMessage
	if header[0] != '{' || !utf8.Valid(header) || json.Unmarshal(header, &top) != nil || !uniqueKeys(header) || brokenSurrogates(header) {
		return nil, errNaive
	}
	out := map[string]naiveTensor{}
	covered := make([]int, len(data))
	for name, raw := range top {
		if name == "__metadata__" {
			if !allStrings(raw) {
				return nil, errNaive
			}
			continue
		}
		x, err := naiveTensorOf(raw, int64(len(data)))
		if err != nil {
			return nil, err
		}
		out[name] = x
		for i := x.begin; i < x.begin+x.bytes; i++ {
			covered[i]++
		}
	}
	for _, times := range covered {
		if times != 1 {
			return nil, errNaive
		}
	}
	return out, emptyTensorsAreAtEdges(out)
}

// emptyTensorsAreAtEdges: a tensor without bytes lies where another ends or begins.
func emptyTensorsAreAtEdges(all map[string]naiveTensor) error {
	for _, x := range all {
		for _, y := range all {
			if x.bytes == 0 && x.begin > y.begin && x.begin < y.begin+y.bytes {
				return errNaive
			}
		}
	}
	return nil
}

var widths = map[string]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}

func naiveTensorOf(raw json.RawMessage, data int64) (naiveTensor, error) {
	var fields map[string]json.RawMessage
	var name string
	if json.Unmarshal(raw, &fields) != nil || len(fields) != 3 || json.Unmarshal(fields["dtype"], &name) != nil || widths[name] == 0 {
		return naiveTensor{}, errNaive
	}
	dims, ok := naiveIntegers(fields["shape"])
	offsets, ok2 := naiveIntegers(fields["data_offsets"])
	if !ok || !ok2 || len(offsets) != 2 || len(dims) > 64 {
		return naiveTensor{}, errNaive
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 63)
	elements := big.NewInt(1)
	texts := make([]string, len(dims))
	for i, d := range dims {
		texts[i] = d.String()
		elements.Mul(elements, d)
		if d.Cmp(limit) >= 0 || elements.Cmp(limit) >= 0 {
			return naiveTensor{}, errNaive
		}
	}
	bytes := new(big.Int).Mul(elements, big.NewInt(widths[name]))
	end := new(big.Int).Add(offsets[0], bytes)
	if end.Cmp(offsets[1]) != 0 || end.Cmp(big.NewInt(data)) > 0 {
		return naiveTensor{}, errNaive
	}
	return naiveTensor{name, "[" + strings.Join(texts, " ") + "]", offsets[0].Int64(), bytes.Int64()}, nil
}

var plainInteger = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func naiveIntegers(raw json.RawMessage) ([]*big.Int, bool) {
	var items []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, false
	}
	out := make([]*big.Int, len(items))
	for i, item := range items {
		if !plainInteger.Match(item) {
			return nil, false
		}
		out[i], _ = new(big.Int).SetString(string(item), 10)
	}
	return out, true
}

// allStrings says whether a value is an object of strings.
func allStrings(raw json.RawMessage) bool {
	var items map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &items) != nil {
		return false
	}
	for _, item := range items {
		if item[0] != '"' {
			return false
		}
	}
	return true
}

// uniqueKeys walks all objects of valid JSON.
func uniqueKeys(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var keys []map[string]bool // of the open objects; nil for a list
	expectKey := false
	for {
		token, err := d.Token()
		if err != nil {
			return err == io.EOF
		}
		inObject := len(keys) > 0 && keys[len(keys)-1] != nil
		switch v := token.(type) {
		case json.Delim:
			switch v {
			case '{':
				keys = append(keys, map[string]bool{})
			case '[':
				keys = append(keys, nil)
			default:
				keys = keys[:len(keys)-1]
			}
			expectKey = len(keys) > 0 && keys[len(keys)-1] != nil
			continue
		case string:
			if inObject && expectKey {
				if keys[len(keys)-1][v] {
					return false
				}
				keys[len(keys)-1][v] = true
				expectKey = false
				continue
			}
		}
		expectKey = inObject
	}
}

var surrogateEscape = regexp.MustCompile(`(?i)\\u(d[89ab][0-9a-f]{2})(\\u(d[c-f][0-9a-f]{2}))?|\\u(d[c-f][0-9a-f]{2})`)

// brokenSurrogates finds \uD8xx escapes without their other half.
func brokenSurrogates(raw []byte) bool {
	text := strings.ReplaceAll(string(raw), `\\`, "  ") // an escaped backslash begins no escape
	for _, m := range surrogateEscape.FindAllStringSubmatch(text, -1) {
		if m[2] == "" {
			return true
		}
	}
	return false
}
