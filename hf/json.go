package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object whose values keep their own text.
type object map[string]json.RawMessage

func (o object) set(key string, v any) error {
	text, err := json.Marshal(v)
	o[key] = text
	return err
}

// has reports whether a key has a value other than null.
func (o object) has(key string) bool {
	text, ok := o[key]
	return ok && !isNull(text)
}

func isNull(text json.RawMessage) bool { return string(text) == "null" }

// maxConfig is the size in bytes of the largest config that is read. The largest known have
// some tens of kilobytes.
const maxConfig = 1 << 20

// parseObject reads one JSON object and refuses keys given twice, at any depth.
func parseObject(raw []byte) (object, error) {
	var o object
	if len(raw) > maxConfig {
		return nil, fmt.Errorf("a config of %d bytes; at most %d are read", len(raw), maxConfig)
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("the text is not valid UTF-8")
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("the text is not a JSON object: %w", err)
	}
	if o == nil {
		return nil, fmt.Errorf("the text is null, not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return o, uniqueKeys(d)
}

// uniqueKeys reads one value and returns an error if a key occurs twice. The text is
// known to be valid JSON, whose depth encoding/json limits.
func uniqueKeys(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') && token != json.Delim('[') {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if seen[key.(string)] {
				return fmt.Errorf("the key %q is given twice", key)
			}
			seen[key.(string)] = true
		}
		if err := uniqueKeys(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// encode writes the object as transformers does, with Python's json.dumps(indent=2,
// sort_keys=True): sorted keys, two spaces, ASCII, a newline at the end.
func (o object) encode() ([]byte, error) {
	values := map[string]any{}
	for key, text := range o {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // numbers keep their spelling
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		values[key] = v
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(values); err != nil {
		return nil, err
	}
	return escapeNonASCII(out.Bytes()), nil
}

// escapeNonASCII rewrites characters beyond ASCII, which only strings have, as \uXXXX.
func escapeNonASCII(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
