package weights

import (
	"encoding/binary"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// converted reads, at any offset, as the storage of an optimizer state in another type than
// the one it is stored in. Blocks are converted when they are read, so that the memory it
// takes does not depend on the size of the state.
type converted struct {
	from, to op.Type
	stored   storage
	offset   int64 // of the state in the storage
}

// convertible says whether a state can be converted: it has the same elements, in types
// that states may be in.
func convertible(from, to op.Type) bool {
	return from.Shape.Equal(to.Shape) && isStateType(from.DType) && isStateType(to.DType)
}

func isStateType(t dtype.Type) bool {
	return t.IsPlain() || quant.IsState(t)
}

// convertElements is how many elements are converted at a time: whole blocks.
const convertElements = 64 * quant.StateBlock

// ReadAt fills p from a byte of the new storage on.
func (c converted) ReadAt(p []byte, at int64) (int, error) {
	n, end := c.to.Shape.Elements(), at+int64(len(p))
	first, last := c.touched(at, end)
	for i := first; i < last; i += convertElements {
		numbers := make([]float32, min(convertElements, n-i))
		if err := c.numbers(numbers, i); err != nil {
			return 0, err
		}
		raw := make([]byte, c.to.DType.Bytes(int64(len(numbers))))
		if !c.to.DType.Block() {
			encodeState(c.to.DType, raw, numbers)
			put(p, raw, c.to.DType.Bytes(i)-at)
			continue
		}
		if err := quant.Encode(c.to.DType, raw, numbers, len(numbers)); err != nil {
			return 0, err
		}
		scales, codes := quant.View8(len(numbers), raw)
		put(p, scales, i/quant.StateBlock*4-at)
		put(p, codes, c.to.Bytes()-n+i-at)
	}
	return len(p), nil
}

// touched is the range of elements, from the start of a block, that bytes of the new
// storage depend on.
func (c converted) touched(at, end int64) (first, last int64) {
	n := c.to.Shape.Elements()
	if !c.to.DType.Block() {
		width := c.to.DType.Bytes(1)
		first, last = at/width, (end+width-1)/width
	} else if scales := c.to.Bytes() - n; end <= scales {
		first, last = at/4*quant.StateBlock, (end+3)/4*quant.StateBlock
	} else if at >= scales {
		first, last = at-scales, end-scales
	} else {
		first, last = 0, n
	}
	return first / quant.StateBlock * quant.StateBlock, min(last, n)
}

// numbers reads stored elements from the start of a block on.
func (c converted) numbers(dst []float32, first int64) error {
	t, n := c.from.DType, int64(len(dst))
	raw := make([]byte, t.Bytes(n)) // the storage of these alone
	if !t.Block() {
		if _, err := c.stored.ReadAt(raw, c.offset+t.Bytes(first)); err != nil {
			return err
		}
		t.Decode(dst, raw)
		return nil
	}
	scales, codes := quant.View8(len(dst), raw)
	if _, err := c.stored.ReadAt(scales, c.offset+first/quant.StateBlock*4); err != nil {
		return err
	}
	if _, err := c.stored.ReadAt(codes, c.offset+c.from.Bytes()-c.from.Shape.Elements()+first); err != nil {
		return err
	}
	return quant.Decode(t, dst, raw, len(dst))
}

// encodeState writes numbers of a state as op.State rounds them: in f16 no number becomes
// zero or infinite that was not.
func encodeState(t dtype.Type, raw []byte, numbers []float32) {
	t.Encode(raw, numbers)
	if t != dtype.F16 {
		return
	}
	const sign, infinite, most, least = 0x8000, 0x7c00, 0x7bff, 0x0001
	for i, f := range numbers {
		h := binary.LittleEndian.Uint16(raw[2*i:])
		switch size := h &^ sign; {
		case size == 0 && f != 0:
			h |= least
		case size == infinite && f-f == 0:
			h = h&sign | most
		}
		binary.LittleEndian.PutUint16(raw[2*i:], h)
	}
}

// put copies src to an offset of dst, which may be negative or behind its end, as far as
// the two overlap.
func put(dst, src []byte, at int64) {
	if at < 0 {
		src, at = src[min(-at, int64(len(src))):], 0
	}
	if at < int64(len(dst)) {
		copy(dst[at:], src)
	}
}
