package quant

import (
	"fmt"
	"io"

	"spillway/dtype"
)

// Plain reads as n elements of a plain type, made of numbers while it is read, on all
// processors.
func Plain(t dtype.Type, n int64, from Numbers) (io.Reader, error) {
	if !t.IsPlain() {
		return nil, fmt.Errorf("%v is not a type of single numbers; use f32, bf16 or f16", t)
	}
	return &ahead{parts: pieces(n), make: func(part int64, r *room) ([]byte, error) {
		first := part * pieceElements
		count := min(n-first, pieceElements)
		r.size(int(count), int(t.Bytes(count)))
		if err := from(first, r.numbers); err != nil {
			return nil, err
		}
		t.Encode(r.bytes, r.numbers)
		return r.bytes, nil
	}}, nil
}
