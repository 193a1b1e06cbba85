package quant

import (
	"fmt"
	"io"

	"spillway/dtype"
)

// Plain reads as n elements of a plain type, converted on all cores while it is read.
func Plain(t dtype.Type, n int64, from ReadFunc) (io.Reader, error) {
	if !t.IsPlain() {
		return nil, fmt.Errorf("%v is not a plain type; use f32, bf16 or f16", t)
	}
	return encodeParts(n, partElements, from, t.Bytes, func(_ int64, b *buffer) error {
		t.Encode(b.bytes, b.numbers)
		return nil
	}), nil
}

// WritePlain writes n numbers in a plain type, converted on all cores on the way.
func WritePlain(w io.Writer, t dtype.Type, n int64, from ReadFunc) error {
	r, err := Plain(t, n, from)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	return err
}
