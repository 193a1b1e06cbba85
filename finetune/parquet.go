package finetune

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"spillway/data"
	"spillway/data/parquet"
)

// fromParquet copies the columns of a table that are texts to train on as JSON lines, an
// object per row: those that the recipe names, or those of the known formats.
func (c *Corpus) fromParquet(in *reader, name, path string) (string, error) {
	f, size, err := openSized(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading
	table, err := parquet.Open(f, size)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	wanted := data.KnownFields
	if in.Fields != "" {
		wanted = append(strings.Split(in.Fields, ":"), "tools")
	}
	columns := slices.DeleteFunc(table.Columns(), func(column string) bool { return !slices.Contains(wanted, column) })
	if len(columns) == 0 {
		return "", fmt.Errorf("%s: none of its columns is called %s; it has %s: name those with the texts with --fields", name, strings.Join(wanted, ", "), strings.Join(table.Columns(), ", "))
	}
	return c.copied(".jsonl", func(w io.Writer) error {
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		row, rows := int64(0), table.Len()
		err := table.Rows(columns, func(values []any) error {
			object := make(map[string]any, len(values))
			for i, v := range values {
				object[columns[i]] = finite(v)
			}
			if row++; row%1000 == 0 {
				in.progress("reading "+name, row, rows)
			}
			return lines.Encode(object)
		})
		if err != nil {
			return fmt.Errorf("%s, row %d: %w", name, row+1, err)
		}
		return nil
	})
}

// finite is a value without NaN and infinity, which JSON does not have.
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = finite(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = finite(v[k])
		}
	}
	return v
}
