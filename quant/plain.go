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
	return &plain{kind: t, from: puller{n: n, from: from}}, nil
}

type plain struct {
	kind dtype.Type
	from puller
	room []byte
	left []byte // made and not read yet
}

func (p *plain) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		if p.from.first == p.from.n {
			return 0, io.EOF
		}
		if err := p.refill(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

func (p *plain) refill() error {
	start := p.from.first
	if p.room == nil {
		p.room = make([]byte, p.kind.Bytes(p.from.most()))
	}
	n, err := p.from.next(func(first int64, src []float32) error {
		p.kind.Encode(p.room[p.kind.Bytes(first-start):], src)
		return nil
	})
	p.left = p.room[:p.kind.Bytes(int64(n))]
	return err
}
