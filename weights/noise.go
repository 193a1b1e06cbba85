package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/spec"
)

// Noise gives random numbers that are made quickly, for models without weights that are
// tried out, not trained. Params have the spread that their Init says. One in a block type
// is made of random codes, or of some codes again and again, faster than numbers could be
// quantized, and so has other numbers than the same param in a plain type.
func Noise(params []spec.Param, seed uint64) (Values, error) {
	n := noise{}
	for _, p := range params {
		like, known := spreads[p.Init.Dist]
		if !known {
			return nil, fmt.Errorf("param %s starts as %q; known are normal, uniform and constant", p.Name, p.Init.Dist)
		}
		h := fnv.New64a()
		h.Write([]byte(p.Name))
		n[p.Name] = noiseParam{key: op.Key(seed, h.Sum64()), size: p.Type.Shape.Elements(), rows: p.Type.Shape.Rows(), deviation: like * p.Init.Scale}
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
	constant  bool
	value     float64 // of a constant
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
	fillUniform(g.key, g.deviation*math.Sqrt(3), first, dst)
	return nil
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

// again is the codes of some numbers, repeated.
func (g noiseParam) again(t dtype.Type) (io.Reader, bool) {
	n := min(g.size, 1<<16) // a multiple of every block, or all
	numbers, codes := make([]float32, n), make([]byte, quant.Bytes(t, n))
	fillUniform(g.key, g.deviation*math.Sqrt(3), 0, numbers)
	if err := quant.Encode(t, codes, numbers, int(n)); err != nil {
		return nil, false
	}
	if quant.Of(t).Block == 0 { // codes, then a scale for each row
		return io.MultiReader(io.LimitReader(&cycle{of: codes[:n]}, g.size), io.LimitReader(&cycle{of: codes[n:]}, g.rows*int64(len(codes[n:])))), true
	}
	return io.LimitReader(&cycle{of: codes}, quant.Bytes(t, g.size)), true
}

// cycle reads as some bytes without end.
type cycle struct {
	of []byte
	at int
}

func (c *cycle) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], c.of[c.at:])
		n, c.at = n+k, (c.at+k)%len(c.of)
	}
	return n, nil
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
	key := r.key + uint64(word)*0x9e3779b97f4a7c15
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, scramble(key))
		key += 0x9e3779b97f4a7c15
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], scramble(key))
	copy(p, last[:])
}

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
