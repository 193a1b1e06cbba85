package quant

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"spillway/dtype"
)

// Codec is a block format: how the bytes of a tensor are laid out and which numbers they
// stand for. A codec is one file of this package, which registers it; files, plans, ops
// and devices find it here. A device may bring a faster kernel than Decode.
type Codec struct {
	Type dtype.Type // made by Register
	Name string     // of the type, in plans: "i8row"
	// Alias is what people call it, where that is not the name: "int8".
	Alias string
	// Title describes it in a few words, for help texts.
	Title string
	// State is how blocks of optimizer state are coded, see RegisterState; nil of codecs of
	// weights.
	State *StateCode
	// Unsigned is the type for states that are never negative, of a codec of states.
	Unsigned dtype.Type
	// Block is how many elements share a scale. 0: a row of the tensor does, or is a block of several.
	Block int
	// Cache: only keys and values of generation are stored in it.
	Cache bool

	// Bytes is the storage of n elements, or where a block is a row, of a row of n.
	Bytes func(n int64) int64
	// Encode writes the storage of a tensor with rows of cols elements, all of them finite.
	Encode func(dst []byte, src []float32, cols int) error
	// Decode writes the elements from the first-th on of a tensor of n elements in rows of
	// cols. It allocates nothing and may be called from several goroutines.
	Decode func(dst []float32, storage []byte, n, cols, first int)
	// Stream reads as the storage of a weight whose numbers are pulled from a function, so
	// that it may be larger than memory. nil encodes some blocks or rows at a time, which
	// is right where the storage of each lies by itself.
	Stream func(rows, cols int64, from ReadFunc) io.Reader

	fourBit *FourBit // of 4-bit codecs in the layout of bitsandbytes
	rows    *rowCode // of 8-bit codecs with a scale for each row

	interleaver *interleaver // of interleaved types
}

var codecs []*Codec

// Register makes a codec known and returns its type. It is called while the program
// starts and panics on a second codec of the same name.
func Register(c Codec) dtype.Type {
	c.Type = dtype.RegisterBlock(dtype.Block{Name: c.Name, Rows: c.Block == 0, Bytes: c.Bytes, Internal: c.interleaver != nil || c.Cache})
	c.Alias = cmp.Or(c.Alias, c.Name)
	codecs = append(codecs, &c)
	slices.SortFunc(codecs, func(a, b *Codec) int { return cmp.Compare(a.Alias, b.Alias) })
	return c.Type
}

// Of is the codec of a type, nil for a plain type.
func Of(t dtype.Type) *Codec {
	for _, c := range codecs {
		if c.Type == t {
			return c
		}
	}
	return nil
}

// Weights lists the codecs that weights can be stored in, by the names people call them: not
// the interleaved types, which exist in memory alone, nor those of caches.
func Weights() []*Codec {
	return slices.DeleteFunc(slices.Clone(codecs), func(c *Codec) bool { return c.State != nil || c.interleaver != nil || c.Cache })
}

// Aliases names the codecs of weights, in a sentence or a help text: "fp4, nf4".
func Aliases(separator string) string {
	var names []string
	for _, c := range Weights() {
		names = append(names, c.Alias)
	}
	return strings.Join(names, separator)
}

// ParseWeights finds a codec of weights by its name or what people call it.
func ParseWeights(name string) (dtype.Type, error) {
	for _, c := range Weights() {
		if name == c.Alias || name == c.Name {
			return c.Type, nil
		}
	}
	return dtype.Invalid, fmt.Errorf("unknown format of quantized weights %q; known are %s", name, Aliases(", "))
}

// IsWeights says whether weights can be stored in a type by a codec.
func IsWeights(t dtype.Type) bool {
	c := Of(t)
	return c != nil && c.State == nil && !c.Cache
}

// Encode writes numbers in a block type, rows of cols; dst has the bytes of the tensor.
// Infinities and NaN are refused.
func Encode(t dtype.Type, dst []byte, src []float32, cols int) error {
	c, err := codecOf(t, len(src), cols, dst)
	if err != nil {
		return err
	}
	if first := firstNonFinite(src); first >= 0 {
		return fmt.Errorf("element %d is %v, which %v cannot hold", first, src[first], t)
	}
	return c.Encode(dst, src, cols)
}

// Decode reads what Encode wrote.
func Decode(t dtype.Type, dst []float32, src []byte, cols int) error {
	c, err := codecOf(t, len(dst), cols, src)
	if err == nil {
		c.Decode(dst, src, len(dst), cols, 0)
	}
	return err
}

// Bytes is the storage of n elements of a block type that are one row.
func Bytes(t dtype.Type, n int64) int64 { return Of(t).Bytes(n) }

// codecOf finds the codec of a type and refuses storage that is not that of n elements in
// rows of cols.
func codecOf(t dtype.Type, n, cols int, storage []byte) (*Codec, error) {
	c := Of(t)
	if c == nil {
		return nil, fmt.Errorf("%v is not a block type", t)
	}
	want := c.Bytes(int64(n))
	if c.Block == 0 {
		if cols < 1 || n%cols != 0 {
			return nil, fmt.Errorf("%d elements are not rows of %d", n, cols)
		}
		want = int64(n/cols) * c.Bytes(int64(cols))
	}
	if int64(len(storage)) != want {
		return nil, fmt.Errorf("%d bytes for %d elements of %v, want %d", len(storage), n, t, want)
	}
	return c, nil
}
