package stored

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// What bitsandbytes stores in 4 bits next to the codes, under the weight's name:
//
//	.absmax                               f32 per block, or its code where it is quantized again
//	.quant_map                            the sixteen values
//	.nested_absmax, .nested_quant_map     of the codes of absmax, where there are any
//	.quant_state.bitsandbytes__nf4, __fp4 JSON: block size, shape and so on
const (
	absmaxSuffix       = ".absmax"
	mapSuffix          = ".quant_map"
	nestedAbsmaxSuffix = ".nested_absmax"
	nestedMapSuffix    = ".nested_quant_map"
	stateInfix         = ".quant_state.bitsandbytes__"
)

func init() {
	layouts = append(layouts, layout{
		types: []dtype.Type{quant.NF4, quant.FP4}, library: bitsandbytes, collect: collectFourBit, outputs: Weight.fourBit,
		config: func(o Options) any {
			c := newBitsandbytes(o)
			c.Loaded4, c.Load4, c.Kind, c.Double = true, true, o.Type.String(), o.Double
			return c
		},
	})
}

// quantState is the JSON of a quant_state, in the order bitsandbytes writes it.
type quantState struct {
	Kind      string      `json:"quant_type"`
	Block     int64       `json:"blocksize"`
	Type      string      `json:"dtype"`
	Shape     shape.Shape `json:"shape"`
	Group     int64       `json:"nested_blocksize"`
	GroupType string      `json:"nested_dtype"`
	Offset    *float64    `json:"nested_offset"` // of a weight whose absmax are quantized
}

// maxStateBytes bounds the JSON, in bytes.
const maxStateBytes = 64 << 10

func readQuantState(t tensorfile.Tensor) (d quantState, err error) {
	if t.Type != dtype.U8 || t.Bytes > maxStateBytes {
		return d, fmt.Errorf("its description is %v of %d bytes, want at most %d of u8", t.Type, t.Bytes, maxStateBytes)
	}
	text := make([]byte, t.Bytes)
	if _, err := t.ReadAt(text, 0); err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("its description: %w", err)
	}
	switch {
	case d.Kind != "nf4" && d.Kind != "fp4":
		return d, fmt.Errorf("its quant_type is %q; known are nf4 and fp4", d.Kind)
	case d.Block < 32 || d.Block > 4096 || d.Block&(d.Block-1) != 0:
		return d, fmt.Errorf("its blocksize is %d, want a power of two from 32 to 4096", d.Block)
	case d.Offset != nil && d.Group != quant.FourBitGroup:
		return d, fmt.Errorf("its nested_blocksize is %d, want %d", d.Group, quant.FourBitGroup)
	}
	return d, d.Shape.Check()
}

// encode writes the JSON as Python's json.dumps does. The offset ends it, and spaces
// after it make up for its length, which is not known when the file is laid out.
func (d quantState) encode() []byte {
	dims := make([]string, len(d.Shape))
	for i, n := range d.Shape {
		dims[i] = strconv.FormatInt(n, 10)
	}
	text := fmt.Sprintf(`{"quant_type": "%s", "blocksize": %d, "dtype": "%s", "shape": [%s]`, d.Kind, d.Block, d.Type, strings.Join(dims, ", "))
	if d.Offset == nil {
		return []byte(text + "}")
	}
	text += fmt.Sprintf(`, "nested_blocksize": %d, "nested_dtype": "%s", "nested_offset": `, d.Group, d.GroupType)
	const longest = 24 // of a float64 in digits
	return fmt.Appendf(nil, "%s%-*s", text, longest+1, pythonFloat(*d.Offset)+"}")
}

func pythonFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// fourBit is a weight as bitsandbytes stores it in 4 bits.
type fourBit struct {
	kind   dtype.Type
	n      int64 // elements
	codes  tensorfile.Tensor
	block  int64
	values [16]float32
	scales tensorfile.Tensor // absmax of blocks: f32, or codes

	nested bool // the absmax are quantized
	groups []byte
	offset float32
	map8   [256]float32
}

// collectFourBit makes the weight that a quant_state is of.
func collectFourBit(c *collector, t tensorfile.Tensor) (w Tensor, err error) {
	name, kind, ok := strings.Cut(t.Name, stateInfix)
	if !ok {
		return w, nil
	}
	d, err := readQuantState(t)
	if err != nil {
		return w, err
	}
	if d.Kind != kind {
		return w, fmt.Errorf("its description is named %s and says %s", kind, d.Kind)
	}
	c.mark(t)
	f := &fourBit{block: d.Block, n: d.Shape.Elements()}
	if f.kind, err = dtype.Parse(kind); err != nil {
		return w, err
	}
	if f.codes, err = c.take(name); err != nil {
		return w, err
	}
	if want := (f.n + 1) / 2; f.codes.Bytes != want {
		return w, fmt.Errorf("%d bytes of codes for %v, want %d", f.codes.Bytes, d.Shape, want)
	}
	w = Tensor{Name: name, Type: f.kind, Shape: d.Shape, data: f.codes, encoded: f}
	return w, f.readScales(c, name, d)
}

// readScales reads everything but the absmax of blocks.
func (f *fourBit) readScales(c *collector, name string, d quantState) error {
	values, err := c.f32(name+mapSuffix, int64(len(f.values)))
	if err != nil {
		return err
	}
	copy(f.values[:], values)
	if f.scales, err = c.take(name + absmaxSuffix); err != nil {
		return err
	}
	blocks, kind := (f.n+f.block-1)/f.block, dtype.F32
	if f.nested = d.Offset != nil; f.nested {
		kind = dtype.U8
		if err := f.readNested(c, name, blocks); err != nil {
			return err
		}
		f.offset = float32(*d.Offset)
	}
	if f.scales.Type != kind || f.scales.Shape.Elements() != blocks {
		return fmt.Errorf("its absmax are %v%v, want %d of %v", f.scales.Type, f.scales.Shape, blocks, kind)
	}
	return nil
}

func (f *fourBit) readNested(c *collector, name string, blocks int64) error {
	map8, err := c.f32(name+nestedMapSuffix, int64(len(f.map8)))
	if err != nil {
		return err
	}
	copy(f.map8[:], map8)
	groups, err := c.f32(name+nestedAbsmaxSuffix, (blocks+quant.FourBitGroup-1)/quant.FourBitGroup)
	f.groups = quant.F32Bytes(groups)
	return err
}

// read decodes the whole blocks that the elements are in, with the file's own values.
func (f *fourBit) read(dst []float32, first int64) error {
	from := first / f.block * f.block
	end := min((first+int64(len(dst))+f.block-1)/f.block*f.block, f.n)
	absmax, err := f.absmax(from/f.block, (end-from+f.block-1)/f.block)
	if err != nil {
		return err
	}
	codes := make([]byte, (end-from+1)/2)
	if _, err := f.codes.ReadAt(codes, from/2); err != nil {
		return err
	}
	for k := range dst {
		i := first - from + int64(k)
		code := codes[i/2] >> (4 * (1 - i%2)) & 15
		dst[k] = f.values[code] * absmax[i/f.block]
	}
	return nil
}

// absmax of n blocks from the first-th on.
func (f *fourBit) absmax(first, n int64) ([]float32, error) {
	out := make([]float32, n)
	if !f.nested {
		return out, f.scales.ReadF32(out, first)
	}
	// Group boundaries stay: codes begin with those of a whole group.
	begin := first / quant.FourBitGroup * quant.FourBitGroup
	codes := make([]byte, first+n-begin)
	if _, err := f.scales.ReadAt(codes, begin); err != nil {
		return nil, err
	}
	scales := quant.Scales{Codes: codes, Groups: f.groups[4*begin/quant.FourBitGroup:], Offset: f.offset}
	scales.Absmax(out, int(first-begin), &f.map8)
	return out, nil
}

// storage is that of package quant where it holds the same: block and group sizes, the
// sixteen values, and quantized absmax.
func (f *fourBit) storage() (r io.Reader, exact, ok bool) {
	// The last bits of the map depend on the CPU that made it.
	near := func(x, y float32) bool { return math.Abs(float64(x-y)) <= 3e-7*math.Abs(float64(y)) }
	if f.block != quant.FourBitBlock || !f.nested || f.values != quant.FourBitOf(f.kind).Values || !slices.EqualFunc(f.map8[:], quant.Signed.Values[:], near) {
		return nil, false, false
	}
	tail := quant.Scales{Groups: f.groups, Offset: f.offset}.Append(nil)
	r = io.MultiReader(io.NewSectionReader(f.codes, 0, f.codes.Bytes), io.NewSectionReader(f.scales, 0, f.scales.Bytes), bytes.NewReader(tail))
	return r, f.map8 == quant.Signed.Values, true
}
