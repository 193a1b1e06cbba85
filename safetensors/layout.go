package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"spillway/dtype"
)

// fileOrder is how Hugging Face's library orders tensors: by type, wide ones first
// so that each tensor is aligned to its elements, then by name.
var fileOrder = []dtype.Type{
	dtype.U64, dtype.I64, dtype.F64, dtype.F32, dtype.U32, dtype.I32, dtype.BF16, dtype.F16, dtype.U16, dtype.I16,
	dtype.F8E4M3, dtype.F8E5M2, dtype.I8, dtype.U8, dtype.Bool,
}

// Layout decides where tensors go in a file. Of each it takes the name, type and
// shape; the order in which they are given does not matter.
func Layout(tensors []Info, metadata map[string]string) (*Header, error) {
	h := &Header{Tensors: slices.Clone(tensors), Metadata: metadata}
	if len(tensors) > MaxTensors {
		return nil, fmt.Errorf("%d tensors in one file, at most %d are allowed: write shards", len(tensors), MaxTensors)
	}
	slices.SortFunc(h.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(slices.Index(fileOrder, a.Type), slices.Index(fileOrder, b.Type)), cmp.Compare(a.Name, b.Name))
	})
	if err := h.place(); err != nil {
		return nil, err
	}
	header, err := h.encode()
	if err != nil {
		return nil, err
	}
	h.start = int64(len(header))
	for i := range h.Tensors {
		h.Tensors[i].Offset += h.start
	}
	return h, nil
}

// place gives each tensor its size and its offset in the data.
func (h *Header) place() error {
	names := make(map[string]bool, len(h.Tensors))
	at := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Name == metadataKey || !utf8.ValidString(t.Name) || names[t.Name] {
			return fmt.Errorf("the tensor name %q is reserved, not UTF-8 or given twice", t.Name)
		}
		names[t.Name] = true
		n, err := size(t.Type, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if n > math.MaxInt64-2*MaxHeader-at {
			return fmt.Errorf("tensor %q: the file would have more bytes than 63 bits count", t.Name)
		}
		t.Offset, t.Bytes = at, n
		at += n
	}
	return nil
}

// encode makes the first bytes of the file: the header's length and its text, padded
// with spaces so that the data begins at a multiple of 8.
func (h *Header) encode() ([]byte, error) {
	p := append(make([]byte, prefix), '{')
	if len(h.Metadata) > 0 {
		p = append(appendString(p, metadataKey), ":{"...)
		for _, k := range slices.Sorted(maps.Keys(h.Metadata)) {
			p = append(appendString(p, k), ':')
			p = append(appendString(p, h.Metadata[k]), ',')
		}
		p = append(p[:len(p)-1], "},"...)
	}
	for _, t := range h.Tensors {
		p = append(h.appendTensor(p, t), ',')
	}
	if p[len(p)-1] == ',' {
		p = p[:len(p)-1]
	}
	p = append(p, '}')
	for len(p)%prefix != 0 {
		p = append(p, ' ')
	}
	if n := len(p) - prefix; n > MaxHeader {
		return nil, fmt.Errorf("the header has %d bytes, at most %d are allowed: write shards", n, MaxHeader)
	}
	binary.LittleEndian.PutUint64(p, uint64(len(p)-prefix))
	return p, nil
}

func (h *Header) appendTensor(p []byte, t Info) []byte {
	p = appendString(p, t.Name)
	p = append(p, `:{"dtype":"`+t.Type.Safetensors()+`","shape":[`...)
	for i, d := range t.Shape {
		if i > 0 {
			p = append(p, ',')
		}
		p = strconv.AppendInt(p, d, 10)
	}
	begin := t.Offset - h.start
	p = append(p, `],"data_offsets":[`...)
	p = append(strconv.AppendInt(p, begin, 10), ',')
	return append(strconv.AppendInt(p, begin+t.Bytes, 10), "]}"...)
}

// appendString quotes as Hugging Face's library does: only what JSON demands.
func appendString(p []byte, s string) []byte {
	p = append(p, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			p = append(p, '\\', c)
		case c < ' ':
			quoted, _ := json.Marshal(s[i : i+1]) // a control character always marshals
			p = append(p, quoted[1:len(quoted)-1]...)
		default:
			p = append(p, c)
		}
	}
	return append(p, '"')
}
