// Package dtype names the element types of tensors and converts between them.
//
// Plain types have a fixed size per element. Block types store a tensor as packed codes
// and scales, so only a whole tensor has a size: always ask Bytes, never multiply by a
// width. Where a block is a row of the tensor, however long, Bytes is that of one row, and
// a tensor has as many. Block types are registered by the codecs of package quant, which
// knows how their bytes are laid out: NF4, RowI8 and so on.
package dtype

import (
	"fmt"
	"slices"
	"strings"
)

// Type is an element type. The zero value is invalid.
type Type uint8

// The plain element types. Block types follow, as they are registered.
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
	firstBlock
)

// info of a type: its name here, in safetensors files and in config.json, and its size.
type info struct {
	name, safetensors, torch string
	bytes                    int64  // of an element
	block                    *Block // nil for plain types
}

// types has the info of every type, by its number.
var types = []info{
	Invalid: {name: "invalid"},
	F64:     {"f64", "F64", "float64", 8, nil},
	F32:     {"f32", "F32", "float32", 4, nil},
	F16:     {"f16", "F16", "float16", 2, nil},
	BF16:    {"bf16", "BF16", "bfloat16", 2, nil},
	F8E4M3:  {"f8e4m3", "F8_E4M3", "float8_e4m3fn", 1, nil},
	F8E5M2:  {"f8e5m2", "F8_E5M2", "float8_e5m2", 1, nil},
	I64:     {"i64", "I64", "int64", 8, nil},
	I32:     {"i32", "I32", "int32", 4, nil},
	I16:     {"i16", "I16", "int16", 2, nil},
	I8:      {"i8", "I8", "int8", 1, nil},
	U64:     {"u64", "U64", "uint64", 8, nil},
	U32:     {"u32", "U32", "uint32", 4, nil},
	U16:     {"u16", "U16", "uint16", 2, nil},
	U8:      {"u8", "U8", "uint8", 1, nil},
	Bool:    {"bool", "BOOL", "bool", 1, nil},
}

// Block describes a block type.
type Block struct {
	Name string // "nf4"
	Rows bool   // a block is a row of the tensor
	// Internal types are how memory is laid out, which plans name and nobody asks for.
	Internal bool
	// Bytes is the storage of n elements; where a block is a row, of a row of n.
	Bytes func(n int64) int64
}

// RegisterBlock adds a block type. It is called while the program starts, by the codecs
// of package quant, and panics on a name that is taken.
func RegisterBlock(b Block) Type {
	if _, err := Parse(b.Name); err == nil || b.Name == "" || len(types) > 255 {
		panic("dtype: empty, second or one too many registration of block type " + b.Name)
	}
	types = append(types, info{name: b.Name, block: &b})
	return Type(len(types) - 1)
}

// String is the short name, as in plans and flags: "bf16".
func (t Type) String() string {
	if int(t) >= len(types) {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return types[t].name
}

// Safetensors is the name in a safetensors header, "" for block types.
func (t Type) Safetensors() string { return types[t].safetensors }

// Torch is the name in a config.json, "" for block types.
func (t Type) Torch() string { return types[t].torch }

// Block says whether the type is a block format, without a size per element.
func (t Type) Block() bool { return t >= firstBlock && int(t) < len(types) }

// ByRows says whether the type is a block format whose blocks are rows.
func (t Type) ByRows() bool { return t.Block() && types[t].block.Rows }

// Float says whether the type holds real numbers.
func (t Type) Float() bool { return t >= F64 && t <= F8E5M2 || t.Block() }

// Bytes is the exact storage of n elements; of types whose blocks are rows, of a row of n.
func (t Type) Bytes(n int64) int64 {
	if b := types[t].block; b != nil {
		return b.Bytes(n)
	}
	return n * types[t].bytes
}

// Parse reads any of the names of a type.
func Parse(name string) (Type, error) {
	for t := F64; int(t) < len(types); t++ {
		in := types[t]
		if name == in.name || name != "" && (name == in.safetensors || name == in.torch) {
			return t, nil
		}
	}
	var known []string
	for _, in := range types[F64:] {
		if in.block == nil || !in.block.Internal {
			known = append(known, in.name)
		}
	}
	slices.Sort(known)
	return Invalid, fmt.Errorf("unknown element type %q; known are %s", name, strings.Join(known, ", "))
}

// ParsePlain reads the type that somebody asks to compute in or to store in: one of plain numbers, by any of its names, fp32
// and fp16 too.
func ParsePlain(name string) (Type, error) {
	switch name {
	case "fp32":
		return F32, nil
	case "fp16":
		return F16, nil
	}
	t, err := Parse(name)
	if err != nil || !t.IsPlain() {
		return Invalid, fmt.Errorf("%q is not a type of plain numbers; those are f32, bf16 and f16", name)
	}
	return t, nil
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
