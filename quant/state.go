package quant

import (
	"slices"

	"spillway/dtype"
)

// StateBlock is how many elements of an optimizer state share an f32 scale.
const StateBlock = 256

// StateCode is how a block of optimizer state, at most StateBlock finite numbers, is coded: a
// byte for each and a scale. All zero bytes with a scale of zero stand for zeros, which is
// where states start. Both functions allocate nothing and are called from several goroutines.
type StateCode struct {
	Encode func(codes []byte, src []float32) (scale float32)
	Decode func(dst []float32, codes []byte, scale float32)
}

// StateCodec is a codec of optimizer state: its name, what people write behind the name of an
// optimizer ("8bit" in adamw_8bit), and its codes. Unsigned is for states that are never
// negative, such as means of squares, whose type is the name with a u before it; the zero value
// codes them like the others.
type StateCodec struct {
	Name, Alias, Title string
	Signed, Unsigned   StateCode
}

// RegisterState makes a codec of optimizer state known and returns its type: from here on
// optimizers, plans, checkpoints, conformance tests and the CPU know it. A tensor is laid out
// as the scales of its blocks, an f32 each, and behind them the codes. It is called while the
// program starts.
func RegisterState(c StateCodec) dtype.Type {
	t := Register(c.Signed.codec(c.Name, c.Alias, c.Title))
	if c.Unsigned.Encode != nil {
		Of(t).Unsigned = Register(c.Unsigned.codec("u"+c.Name, "", c.Title))
	}
	return t
}

// States lists the codecs that optimizer states can be stored in, by the names people call
// them, without those for unsigned states.
func States() (list []*Codec) {
	for _, c := range codecs {
		if c.State != nil && !slices.ContainsFunc(codecs, func(o *Codec) bool { return o.Unsigned == c.Type }) {
			list = append(list, c)
		}
	}
	return list
}

// IsState says whether optimizer states can be stored in a type by a codec.
func IsState(t dtype.Type) bool {
	c := Of(t)
	return c != nil && c.State != nil
}

func (s StateCode) codec(name, alias, title string) Codec {
	return Codec{Name: name, Alias: alias, Title: title, State: &s, Block: StateBlock, Encode: s.encodeTensor, Decode: s.decodeRange,
		Bytes: func(n int64) int64 { return 4*((n+StateBlock-1)/StateBlock) + n }}
}

// View8 cuts the storage of a state of n elements into its parts, in place.
func View8(n int, b []byte) (scales, codes []byte) {
	at := 4 * ceil(n, StateBlock)
	return b[:at], b[at : at+n]
}

func (s StateCode) encodeTensor(dst []byte, src []float32, _ int) error {
	scales, codes := View8(len(src), dst)
	for b := range ceil(len(src), StateBlock) {
		from, to := b*StateBlock, min((b+1)*StateBlock, len(src))
		putF32(scales, b, s.Encode(codes[from:to], src[from:to]))
	}
	return nil
}

func (s StateCode) decodeRange(dst []float32, storage []byte, n, _, first int) {
	scales, codes := View8(n, storage)
	for len(dst) > 0 {
		b := first / StateBlock
		count := min(len(dst), (b+1)*StateBlock-first)
		s.Decode(dst[:count], codes[first:first+count], getF32(scales, b))
		dst, first = dst[count:], first+count
	}
}
