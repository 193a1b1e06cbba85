package parquet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spillway/internal/bounded"
)

// testdata comes from pyarrow, pandas and datasets (tools/reference/parquet.py).

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// objects reads all rows of a file as JSON does.
func objects(raw []byte, most int) (rows []map[string]any, err error) {
	table, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, err
	}
	columns := table.Columns()
	if len(columns) == 0 {
		return nil, nil
	}
	enough := errors.New("enough")
	err = table.Rows(columns, func(values []any) error {
		row := map[string]any{}
		for i, v := range values {
			row[columns[i]] = v
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		row = nil
		if err := json.Unmarshal(text, &row); err != nil {
			return err
		}
		if rows = append(rows, row); len(rows) >= most {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return rows, err
}

// Every file has the rows that the JSON lines have, value for value.
func TestFilesOfOthers(t *testing.T) {
	var want []map[string]any
	for line := range bytes.Lines(readFile(t, "rows.jsonl")) {
		var row map[string]any
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		want = append(want, row)
	}
	for _, name := range []string{
		"none", "none-v2", "snappy", "snappy-v2", "gzip", "gzip-v2", "zstd", "zstd-v2", "plain", "small-pages", "delta-length", "delta-bytes", "large", "large-string", "pandas", "hub",
	} {
		raw := readFile(t, name+".parquet")
		got, err := objects(raw, len(want)+1)
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %d rows of %d, %v", name, len(got), len(want), err)
			continue
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%s, row %d:\n got %v\nwant %v", name, i, got[i], want[i])
				break
			}
		}
		table, err := Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil || table.Len() != int64(len(want)) {
			t.Errorf("%s: %v rows, %v", name, table.Len(), err)
		}
	}
}

func TestWhatIsNotRead(t *testing.T) {
	whole := readFile(t, "snappy.parquet")
	footer := int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"brotli":      {readFile(t, "brotli.parquet"), "write the file with snappy, zstd or gzip"},
		"binary":      {readFile(t, "binary.parquet"), "not UTF-8"},
		"nothing":     {nil, "no Parquet file"},
		"a text":      {[]byte(strings.Repeat("{\"text\": 1}\n", 9)), "no Parquet file"},
		"cut short":   {whole[:len(whole)/2], "no Parquet file"},
		"footer only": {append([]byte(magic), whole[len(whole)-8-footer:]...), "cut short"},
		"encrypted":   {append(whole[:len(whole)-4:len(whole)-4], "PARE"...), "encrypted"},
		"huge footer": {append(whole[:len(whole)-8:len(whole)-8], 0xff, 0xff, 0xff, 0x7f, 'P', 'A', 'R', '1'), "footer"},
	} {
		if rows, err := objects(c.raw, 10); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d rows, %v; want %q", name, len(rows), err, c.want)
		}
	}
	table, err := Open(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Rows([]string{"txt"}, func([]any) error { return nil }); err == nil {
		t.Error("a column that is not there")
	}
}

// Damaged files give errors, in bounds of time and memory.
func TestDamagedFiles(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"snappy", "zstd-v2", "gzip", "small-pages", "delta-bytes", "delta-length", "plain"} {
		whole := readFile(t, name+".parquet")
		for range 100 {
			raw := bytes.Clone(whole)
			for range 1 + random.IntN(4) {
				at := random.IntN(len(raw))
				if random.IntN(2) == 0 {
					at = len(raw) - 1 - random.IntN(min(len(raw), 4000)) // the footer
				}
				raw[at] = byte(random.IntN(256))
			}
			bounded.Check(t, len(raw), func() {
				_, _ = objects(raw, 1000) // an error or rows
			})
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range []string{"snappy", "zstd-v2", "gzip", "small-pages", "delta-bytes", "delta-length", "plain", "hub", "large", "brotli", "binary"} {
		f.Add(readFile(f, name+".parquet"))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		bounded.Check(t, len(raw), func() {
			_, _ = objects(raw, 1000)
		})
	})
}
