package stored

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
)

// description is the JSON of a quant_state, in the order bitsandbytes writes it.
type quantState struct {
	Kind      string      `json:"quant_type"`
	Block     int64       `json:"blocksize"`
	Type      string      `json:"dtype"`
	Shape     shape.Shape `json:"shape"`
	Group     int64       `json:"nested_blocksize"`
	GroupType string      `json:"nested_dtype"`
	Offset    *float64    `json:"nested_offset"` // of a weight whose absmax is coded
}

// maxState bounds the JSON, in bytes.
const maxStateBytes = 64 << 10

func readQuantState(t safetensors.Tensor) (d quantState, err error) {
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
	return d, d.check()
}

func (d quantState) check() error {
	if d.Kind != "nf4" && d.Kind != "fp4" {
		return fmt.Errorf("its quant_type is %q; known are nf4 and fp4", d.Kind)
	}
	if d.Block < 32 || d.Block > 4096 || d.Block&(d.Block-1) != 0 {
		return fmt.Errorf("its blocksize is %d, want a power of two from 32 to 4096", d.Block)
	}
	if d.Offset != nil && d.Group != quant.FourBitGroup {
		return fmt.Errorf("its nested_blocksize is %d, want %d", d.Group, quant.FourBitGroup)
	}
	return d.Shape.Check()
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

// state is what decoding a 4-bit weight takes besides its codes.
type fourBit struct {
	block  int64
	values [16]float32
	scales safetensors.Tensor // absmax of blocks: f32, or codes

	nested bool // the absmax are coded
	groups []byte
	offset float32
	map8   [256]float32
}

// fourBit makes the weight a description is of.
func (c *collector) fourBit(name, kind string, t safetensors.Tensor) (w Tensor, err error) {
	d, err := readQuantState(t)
	if err != nil {
		return w, err
	}
	if d.Kind != kind {
		return w, fmt.Errorf("its description is named %s and says %s", kind, d.Kind)
	}
	c.mark(t)
	w = Tensor{Name: name, Shape: d.Shape, fourBit: &fourBit{block: d.Block}}
	if w.Type, err = dtype.Parse(kind); err != nil {
		return w, err
	}
	if w.data, err = c.take(name); err != nil {
		return w, err
	}
	n := d.Shape.Elements()
	if want := (n + 1) / 2; w.data.Bytes != want {
		return w, fmt.Errorf("%d bytes of codes for %v, want %d", w.data.Bytes, d.Shape, want)
	}
	return w, c.scales(w.fourBit, name, d, (n+d.Block-1)/d.Block)
}

// scales reads everything but the absmax of blocks, of which there is a given number.
func (c *collector) scales(s *fourBit, name string, d quantState, blocks int64) error {
	values, err := c.floats(name+mapSuffix, len(s.values))
	if err != nil {
		return err
	}
	copy(s.values[:], values)
	if s.scales, err = c.take(name + absmaxSuffix); err != nil {
		return err
	}
	kind := dtype.F32
	if s.nested = d.Offset != nil; s.nested {
		kind = dtype.U8
		if err := c.nested(s, name, blocks); err != nil {
			return err
		}
		s.offset = float32(*d.Offset)
	}
	if s.scales.Type != kind || s.scales.Shape.Elements() != blocks {
		return fmt.Errorf("its absmax are %v%v, want %d of %v", s.scales.Type, s.scales.Shape, blocks, kind)
	}
	return nil
}

func (c *collector) nested(s *fourBit, name string, blocks int64) error {
	map8, err := c.floats(name+nestedMapSuffix, len(s.map8))
	if err != nil {
		return err
	}
	copy(s.map8[:], map8)
	groups, err := c.take(name + nestedAbsmaxSuffix)
	if err != nil {
		return err
	}
	if want := (blocks + quant.FourBitGroup - 1) / quant.FourBitGroup; groups.Type != dtype.F32 || groups.Shape.Elements() != want {
		return fmt.Errorf("its nested_absmax are %v%v, want %d of f32", groups.Type, groups.Shape, want)
	}
	s.groups = make([]byte, groups.Bytes)
	_, err = groups.ReadAt(s.groups, 0)
	return err
}

// floats reads a part that has so many numbers.
func (c *collector) floats(name string, n int) ([]float32, error) {
	t, err := c.take(name)
	if err != nil {
		return nil, err
	}
	if t.Shape.Elements() != int64(n) {
		return nil, fmt.Errorf("tensor %s has %d numbers, want %d", name, t.Shape.Elements(), n)
	}
	return floats(t)
}

// ours says that the storage of package quant holds the same: block and group sizes, the
// sixteen values, and coded absmax.
func (s *fourBit) matchesStorage(kind dtype.Type) bool {
	return s.block == quant.FourBitBlock && s.nested && s.values == quant.FourBitOf(kind).Values && mapsClose(s.map8[:], quant.Signed.Values[:])
}

// closeMaps accepts last bits that depend on the processor that made the map.
func mapsClose(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 3e-7*math.Abs(float64(y)) })
}
