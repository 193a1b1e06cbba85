package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"sync"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/spec"
)

// Noise gives random numbers that are made quickly, for models without weights that are
// tried out, not trained. Params have the spread that their Init says. One in a block type
// is made of random codes, or, where it is large, of some codes again and again, faster than numbers
// could be quantized, and so may have other numbers than the same param in a plain type.
func Noise(params []spec.Param, seed uint64) (Values, error) {
	n, made := noise{}, &madeCodes{of: map[codesKey][]byte{}}
	for _, p := range params {
		like, known := spreads[p.Init.Dist]
		if !known {
			return nil, fmt.Errorf("param %s starts as %q; known are normal, uniform and constant", p.Name, p.Init.Dist)
		}
		h := fnv.New64a()
		h.Write([]byte(p.Name))
		n[p.Name] = noiseParam{key: op.Key(seed, h.Sum64()), size: p.Type.Shape.Elements(), rows: p.Type.Shape.Rows(), deviation: like * p.Init.Scale, seed: seed, made: made}
		if p.Init.Dist == "constant" {
			n[p.Name] = noiseParam{constant: true, value: p.Init.Scale}
		}
	}
	return n, nil
}

// spreads are the standard deviations of distributions, as shares of their scale.
var spreads = map[string]float64{"normal": 1, "uniform": 1 / math.Sqrt(3), "constant": 0}

// noise is how each param is made, by name.
type noise map[string]noiseParam

type noiseParam struct {
	key       uint64
	deviation float64
	size      int64 // elements
	rows      int64
	seed      uint64
	made      *madeCodes // of all params
	constant  bool
	value     float64 // of a constant
}

// madeCodes are the codes that large params of block types have again and again, made once for each type and
// spread: quantizing takes longer than copying.
type madeCodes struct {
	mu sync.Mutex
	of map[codesKey][]byte
}

type codesKey struct {
	kind      dtype.Type
	deviation float64
}

// madeElements is how many numbers those are: a multiple of every block.
const madeElements = 1 << 16

// codes of madeElements numbers; nil where they cannot be quantized.
func (m *madeCodes) codes(seed uint64, k codesKey) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	codes, ok := m.of[k]
	if !ok {
		codes = quantizedNoise(fillQuickly, k.kind, op.Key(seed), k.deviation, madeElements)
		m.of[k] = codes
	}
	return codes
}

// quantizedNoise is the codes of so many numbers; nil where they cannot be quantized.
func quantizedNoise(fill func(key uint64, bound float64, first int64, dst []float32), t dtype.Type, key uint64, deviation float64, elements int64) []byte {
	numbers, codes := make([]float32, elements), make([]byte, quant.Bytes(t, elements))
	fill(key, deviation*math.Sqrt(3), 0, numbers)
	if quant.Encode(t, codes, numbers, int(elements)) != nil {
		return nil
	}
	return codes
}

// Read gives uniform numbers.
func (n noise) Read(param string, first int64, dst []float32) error {
	g, ok := n[param]
	if !ok {
		return fmt.Errorf("param %s is not part of the model these weights were made for", param)
	}
	if g.constant {
		fillConstant(0, g.value, first, dst)
		return nil
	}
	fillQuickly(g.key, g.deviation*math.Sqrt(3), first, dst)
	return nil
}

// fillQuickly is uniform numbers of 16 bits, four of each random word.
func fillQuickly(key uint64, bound float64, first int64, dst []float32) {
	scale := float32(bound / (1 << 15))
	word := func(at int64) uint64 { return scramble(key + uint64(at/4)*wordStep) }
	number := func(bits uint64) float32 { return (float32(int32(bits&0xffff)) - (1<<15 - 0.5)) * scale }
	for ; first%4 != 0 && len(dst) > 0; first, dst = first+1, dst[1:] {
		dst[0] = number(word(first) >> (16 * (first % 4)))
	}
	for ; len(dst) >= 4; first, dst = first+4, dst[4:] {
		w := word(first)
		dst[0], dst[1], dst[2], dst[3] = number(w), number(w>>16), number(w>>32), number(w>>48)
	}
	for i := range dst {
		dst[i] = number(word(first) >> (16 * i))
	}
}

// Packed is random codes, all blocks with one absmax that gives them their deviation.
func (n noise) Packed(param string, t dtype.Type) (io.Reader, bool) {
	g, ok := n[param]
	if !ok || g.constant {
		return nil, false
	}
	if quant.FourBitOf(t) == nil {
		return g.again(t)
	}
	codes, blocks := (g.size+1)/2, (g.size+quant.FourBitBlock-1)/quant.FourBitBlock
	groups := (blocks + quant.FourBitGroup - 1) / quant.FourBitGroup
	var offset [4]byte
	binary.LittleEndian.PutUint32(offset[:], math.Float32bits(float32(g.deviation/deviationOf(quant.FourBitOf(t)))))
	return io.MultiReader(
		io.LimitReader(&randomBytes{key: g.key}, codes),
		io.LimitReader(repeated(quant.Signed.Zero()), blocks), // no scale differs from the offset
		io.LimitReader(repeated(0), 4*groups),
		bytes.NewReader(offset[:]),
	), true
}

// again is the codes of some numbers, repeated. A small param has its own: where it starts uniform, those of
// Random, quantized.
func (g noiseParam) again(t dtype.Type) (io.Reader, bool) {
	n := min(g.size, madeElements)
	var codes []byte
	if g.size <= madeElements {
		codes = quantizedNoise(fillUniform, t, g.key, g.deviation, n)
	} else {
		codes = g.made.codes(g.seed, codesKey{t, g.deviation})
	}
	if codes == nil {
		return nil, false
	}
	if quant.Of(t).Block == 0 { // codes, then a scale for each row
		return io.MultiReader(io.LimitReader(&cycle{of: codes[:n]}, g.size), io.LimitReader(&cycle{of: codes[n:]}, g.rows*int64(len(codes[n:])))), true
	}
	return io.LimitReader(&cycle{of: codes}, quant.Bytes(t, g.size)), true
}

// cycle reads as some bytes without end, which all cores copy.
type cycle struct {
	of []byte
	at int64
}

func (c *cycle) Read(p []byte) (int, error) {
	err := inParallel(p, 1<<20, func(at int64, part []byte) error {
		at = (c.at + at) % int64(len(c.of))
		for len(part) > 0 {
			part, at = part[copy(part, c.of[at:]):], 0
		}
		return nil
	})
	c.at = (c.at + int64(len(p))) % int64(len(c.of))
	return len(p), err
}

// deviationOf is the standard deviation of the values of a code.
func deviationOf(f *quant.FourBit) float64 {
	var sum, squares float64
	for _, v := range f.Values {
		sum += float64(v) / 16
		squares += float64(v) * float64(v) / 16
	}
	return math.Sqrt(squares - sum*sum)
}

// randomBytes are those of a key, eight at a time by their position, so that all cores
// can make them.
type randomBytes struct {
	key uint64
	at  int64 // bytes read
}

func (r *randomBytes) Read(p []byte) (int, error) {
	if r.at%8 != 0 { // the rest of eight
		var word [8]byte
		r.fill(word[:], r.at/8)
		n := copy(p, word[r.at%8:])
		r.at += int64(n)
		return n, nil
	}
	const step = 64 << 10
	err := inParallel(p, step, func(at int64, part []byte) error {
		r.fill(part, (r.at+at)/8)
		return nil
	})
	r.at += int64(len(p))
	return len(p), err
}

// fill writes from a word on; the last may be cut.
func (r *randomBytes) fill(p []byte, word int64) {
	key := r.key + uint64(word)*wordStep
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, scramble(key))
		key += wordStep
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], scramble(key))
	copy(p, last[:])
}

// wordStep is how far the states of splitmix64 are apart.
const wordStep = 0x9e3779b97f4a7c15

// scramble is the output of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// repeated reads as one byte without end.
type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	for done := copy(p, []byte{byte(r)}); done < len(p); done *= 2 {
		copy(p[done:], p[:done])
	}
	return len(p), nil
}
