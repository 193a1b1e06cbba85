package safetensors

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the fuzz corpus anew from the malformed cases")

// file is a safetensors file of a header and so many bytes of data.
func file(header string, data int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), make([]byte, data)...)
}

// claim is a file whose header length is n, whatever follows.
func claim(n uint64, rest string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
}

// one is a header of one tensor.
func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"x":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

// malformed are files that must be refused, each with a part of the error. The fuzz
// corpus is made of them.
var malformed = map[string]struct {
	file []byte
	want string
}{
	"nothing":                  {nil, "fewer than the 8"},
	"seven bytes":              {[]byte("1234567"), "fewer than the 8"},
	"length zero":              {claim(0, ""), "not a safetensors file"},
	"length beyond the end":    {claim(3, "{}"), "cut short"},
	"length above the cap":     {claim(MaxHeader+1, "{}"), "at most 100000000"},
	"length at the cap":        {claim(MaxHeader, "{}"), "cut short"},
	"length of 64 bits":        {claim(1<<64-1, "{}"), "at most 100000000"},
	"length wraps with prefix": {claim(1<<64-8, "{}"), "at most 100000000"},
	"lfs pointer":              {[]byte("version https://git-lfs.github.com/spec/v1\n"), "Git LFS"},
	"zip":                      {[]byte("PK\x03\x04 archive"), "pickled"},
	"gguf":                     {[]byte("GGUF\x03\x00\x00\x00"), "GGUF"},
	"begins with space":        {file(` {}`, 0), "does not begin with {"},
	"an array":                 {file(`[]`, 0), "does not begin with {"},
	"not closed":               {file(`{`, 0), "needed"},
	"rest after header":        {file(`{}{}`, 0), "more after the end"},
	"nul padding":              {file("{}\x00", 0), "more after the end"},
	"invalid utf8":             {file("{\"\xff\":1}", 0), "UTF-8"},
	"half a surrogate":         {file(`{"\ud800":{}}`, 0), "surrogate"},
	"reversed surrogates":      {file(`{"\udc00\ud800":{}}`, 0), "escape"},
	"short escape":             {file(`{"\u12`, 0), "escape"},
	"unknown escape":           {file(`{"\x":{}}`, 0), "escape"},
	"control in a name":        {file("{\"a\nb\":{}}", 0), "control"},
	"name not closed":          {file(`{"abc`, 0), "does not end"},
	"escape at the end":        {file(`{"abc\`, 0), "does not end"},
	"trailing comma":           {file(`{"__metadata__":{},}`, 0), "needed"},
	"no colon":                 {file(`{"x" {}}`, 0), "needed"},
	"tensor is null":           {file(`{"x":null}`, 0), "needed"},
	"tensor is a list":         {file(`{"x":[1,2]}`, 0), "needed"},
	"deep nesting":             {file(`{"x":`+strings.Repeat(`{"x":`, 5000)+strings.Repeat("}", 5001), 0), "unknown key"},
	"metadata is null":         {file(`{"__metadata__":null}`, 0), "needed"},
	"metadata is a number":     {file(`{"__metadata__":{"a":1}}`, 0), "needed"},
	"metadata twice":           {file(`{"__metadata__":{},"__metadata__":{}}`, 0), "given twice"},
	"metadata key twice":       {file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), "given twice"},
	"tensor twice":             {file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "given twice"},
	"tensor twice by escape":   {file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0078":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "given twice"},
	"key twice":                {file(`{"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "given twice"},
	"unknown key":              {file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}}`, 1), "unknown key"},
	"key in capitals":          {file(`{"x":{"DTYPE":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "unknown key"},
	"no dtype":                 {file(`{"x":{"shape":[1],"data_offsets":[0,1]}}`, 1), "all needed"},
	"no shape":                 {file(`{"x":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "all needed"},
	"no offsets":               {file(`{"x":{"dtype":"U8","shape":[1]}}`, 1), "all needed"},
	"empty tensor":             {file(`{"x":{}}`, 0), "all needed"},
	"unknown type":             {file(one(`"F31"`, "[1]", "[0,1]"), 1), "unknown element type"},
	"type in another spelling": {file(one(`"float32"`, "[1]", "[0,4]"), 4), "unknown element type"},
	"empty type":               {file(one(`""`, "[1]", "[0,1]"), 1), "unknown element type"},
	"type is a number":         {file(one(`1`, "[1]", "[0,1]"), 1), "needed"},
	"shape is a number":        {file(one(`"U8"`, "1", "[0,1]"), 1), "needed"},
	"negative dimension":       {file(one(`"U8"`, "[-1]", "[0,1]"), 1), "integer"},
	"fraction":                 {file(one(`"U8"`, "[1.0]", "[0,1]"), 1), "needed"},
	"exponent":                 {file(one(`"U8"`, "[1e0]", "[0,1]"), 1), "needed"},
	"leading zero":             {file(one(`"U8"`, "[01]", "[0,1]"), 1), "integer"},
	"dimension as text":        {file(one(`"U8"`, `["1"]`, "[0,1]"), 1), "integer"},
	"dimension of 64 bits":     {file(one(`"U8"`, "[18446744073709551615]", "[0,1]"), 1), "too large"},
	"dimension of 100 digits":  {file(one(`"U8"`, "["+strings.Repeat("9", 100)+"]", "[0,1]"), 1), "too large"},
	"elements overflow":        {file(one(`"U8"`, "[4294967296,4294967296]", "[0,0]"), 0), "63 bits"},
	"bytes overflow":           {file(one(`"F64"`, "[2305843009213693952]", "[0,0]"), 0), "63 bits"},
	"too many dimensions":      {file(one(`"U8"`, "[1"+strings.Repeat(",1", 64)+"]", "[0,1]"), 1), "more than 64"},
	"one offset":               {file(one(`"U8"`, "[1]", "[0]"), 1), "all needed"},
	"three offsets":            {file(one(`"U8"`, "[1]", "[0,1,1]"), 1), "more than 2"},
	"offsets reversed":         {file(one(`"U8"`, "[1]", "[1,0]"), 1), "needs 1 bytes"},
	"offsets too short":        {file(one(`"F32"`, "[1]", "[0,3]"), 3), "needs 4 bytes"},
	"offsets too long":         {file(one(`"F32"`, "[1]", "[0,5]"), 5), "needs 4 bytes"},
	"offsets beyond the end":   {file(one(`"U8"`, "[2]", "[0,2]"), 1), "cut short"},
	"huge honest claim":        {file(one(`"U8"`, "[9223372036854775807]", "[0,9223372036854775807]"), 1), "cut short"},
	"begins late":              {file(one(`"U8"`, "[1]", "[1,2]"), 2), "begins at byte 1"},
	"rest after data":          {file(one(`"U8"`, "[1]", "[0,1]"), 2), "end at byte 1"},
	"data without tensors":     {file(`{}`, 1), "end at byte 0"},
	"gap":                      {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), "begins at byte 2"},
	"overlap":                  {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "begins at byte 1"},
	"same bytes twice":         {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), "begins at byte 0"},
	"empty tensor inside":      {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2), "begins at byte 1"},
}

// wellformed are files at the edge of what is allowed.
var wellformed = map[string][]byte{
	"no tensors":              file(`{}`, 0),
	"white space":             file("{ \"x\"\t:\n{\"dtype\":\r\"U8\" , \"shape\":[ 1 , 1 ],\"data_offsets\":[0,1]} } \n ", 1),
	"metadata":                file(`{"__metadata__":{"a":"b","":""}}`, 0),
	"scalar":                  file(one(`"F32"`, "[]", "[0,4]"), 4),
	"empty tensors at ends":   file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"c":{"dtype":"F32","shape":[3,0],"data_offsets":[2,2]}}`, 2),
	"empty of huge dimension": file(one(`"F64"`, "[0,9223372036854775807]", "[0,0]"), 0),
	"not in file order":       file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 3),
	"pairs and escapes":       file(`{"\ud83d\ude42\"\\\/\b\f\n\r\t\u00e9":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}`, 1),
	"replacement character":   file("{\"\uFFFD\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
}

func TestRefusesMalformed(t *testing.T) {
	for name, c := range malformed {
		_, err := ReadHeader(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, f := range wellformed {
		if _, err := ReadHeader(bytes.NewReader(f), int64(len(f))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The committed corpus is the list above, no more and no less.
func TestCorpusIsCurrent(t *testing.T) {
	const dir = "testdata/fuzz/FuzzReadHeader"
	want := map[string]string{}
	add := func(name string, f []byte) {
		want[strings.ReplaceAll(name, " ", "_")] = fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", f)
	}
	for name, c := range malformed {
		add(name, c.file)
	}
	for name, f := range wellformed {
		add(name, f)
	}
	if *rewrite {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("corpus file %s is not the case of that name (%v); run with -rewrite", name, err)
		}
	}
}

// A hostile header costs memory in proportion to its own length.
func TestMemoryIsInProportion(t *testing.T) {
	var header strings.Builder
	header.WriteByte('{')
	for i := range 20000 {
		fmt.Fprintf(&header, `%s"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, comma(i), i)
	}
	header.WriteByte('}')
	for name, f := range map[string][]byte{
		"many tensors": file(header.String(), 0),
		"a large name": file(`{"`+strings.Repeat(`\n`, 1<<19)+`":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0),
		"a false size": claim(MaxHeader, "{}"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ReadHeader(bytes.NewReader(f), int64(len(f)))
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(20*len(f)+100_000); got > limit {
			t.Errorf("%s: %d bytes were allocated for a file of %d, at most %d are in proportion", name, got, len(f), limit)
		}
	}
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
