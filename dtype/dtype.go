// Package dtype names the element types of tensors and converts between them.
//
// Plain types have a fixed size per element. Block types (NF4, FP4, Dyn8, UDyn8)
// store a tensor as packed codes plus scales, so only a whole tensor has a size:
// always ask Bytes, never multiply by a width. Of row types (RowI8, RowF8), which are
// block types too, a block is a row of the tensor, however long: Bytes is that of one
// row, and a tensor has as many. Package quant lays their bytes out.
package dtype

import "fmt"

// Type is an element type. The zero value is invalid.
type Type uint8

// The element types. NF4 and FP4 are the block formats of 64 elements with doubly
// quantized scales, for weights. Dyn8 and UDyn8 are the dynamic 8-bit codes in
// blocks of 256, with and without a sign, for what optimizers keep. RowI8 is 8-bit whole
// numbers and RowF8 floats of 8 bits (F8E4M3), with a scale for each row of a weight.
const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	F8E4M3
	F8E5M2
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool
	NF4
	FP4
	Dyn8
	UDyn8
	RowI8
	RowF8
)

// info of a type: its name here, in safetensors files and in config.json, and its
// width in bits.
var info = [...]struct {
	name, safetensors, torch string
	bits                     int64
}{
	Invalid: {"invalid", "", "", 0},
	F64:     {"f64", "F64", "float64", 64},
	F32:     {"f32", "F32", "float32", 32},
	F16:     {"f16", "F16", "float16", 16},
	BF16:    {"bf16", "BF16", "bfloat16", 16},
	F8E4M3:  {"f8e4m3", "F8_E4M3", "float8_e4m3fn", 8},
	F8E5M2:  {"f8e5m2", "F8_E5M2", "float8_e5m2", 8},
	I64:     {"i64", "I64", "int64", 64},
	I32:     {"i32", "I32", "int32", 32},
	I16:     {"i16", "I16", "int16", 16},
	I8:      {"i8", "I8", "int8", 8},
	U64:     {"u64", "U64", "uint64", 64},
	U32:     {"u32", "U32", "uint32", 32},
	U16:     {"u16", "U16", "uint16", 16},
	U8:      {"u8", "U8", "uint8", 8},
	Bool:    {"bool", "BOOL", "bool", 8},
	NF4:     {"nf4", "", "", 4},
	FP4:     {"fp4", "", "", 4},
	Dyn8:    {"dyn8", "", "", 8},
	UDyn8:   {"udyn8", "", "", 8},
	RowI8:   {"i8row", "", "", 8},
	RowF8:   {"f8row", "", "", 8},
}

// Sizes of the 4-bit block formats: a scale byte per block, and an fp32 scale per
// group of blocks, plus one fp32 offset for the whole tensor.
const (
	BlockElements = 64
	GroupBlocks   = 256
)

// Dyn8Elements is how many elements of an 8-bit dynamic tensor share an fp32 scale.
const Dyn8Elements = 256

// String is the short name, as in plans and flags: "bf16".
func (t Type) String() string {
	if int(t) >= len(info) {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return info[t].name
}

// Safetensors is the name in a safetensors header, "" for block types.
func (t Type) Safetensors() string { return info[t].safetensors }

// Torch is the name in a config.json, "" for block types.
func (t Type) Torch() string { return info[t].torch }

// Block says whether the type is a block format, without a size per element.
func (t Type) Block() bool { return t >= NF4 && t <= RowF8 }

// ByRows says whether the type is a block format whose blocks are rows.
func (t Type) ByRows() bool { return t == RowI8 || t == RowF8 }

// Float says whether the type holds real numbers.
func (t Type) Float() bool { return t >= F64 && t <= F8E5M2 || t.Block() }

// Bytes is the exact storage of n elements; of row types, of a row of n.
func (t Type) Bytes(n int64) int64 {
	switch t {
	case NF4, FP4:
		blocks := ceil(n, BlockElements)
		return ceil(n, 2) + blocks + 4*ceil(blocks, GroupBlocks) + 4
	case Dyn8, UDyn8:
		return 4*ceil(n, Dyn8Elements) + n
	case RowI8, RowF8:
		return n + 4
	}
	return n * (info[t].bits / 8)
}

// Parse reads any of the three names of a type.
func Parse(name string) (Type, error) {
	for t := F64; int(t) < len(info); t++ {
		in := info[t]
		if name == in.name || name != "" && (name == in.safetensors || name == in.torch) {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q; known are f32, bf16, f16, f64, i64, i32, i16, i8, u8, bool, f8e4m3, f8e5m2, nf4, fp4, dyn8, udyn8, i8row, f8row", name)
}

// MarshalText writes the short name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote, the zero value too.
func (t *Type) UnmarshalText(b []byte) error {
	if string(b) == Invalid.String() {
		*t = Invalid
		return nil
	}
	v, err := Parse(string(b))
	*t = v
	return err
}

func ceil(n, d int64) int64 { return (n + d - 1) / d }
