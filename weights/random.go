package weights

import (
	"fmt"
	"hash/fnv"
	"math"

	"spillway/op"
	"spillway/spec"
)

// Random gives initial values at random: each param as its Init says, from streams that
// derive from the seed and the param's name. An element is a pure function of (seed, name,
// index). Params that start as the magnitudes of others are not among them.
func Random(params []spec.Param, seed uint64) (Values, error) {
	f := random{}
	for _, p := range params {
		if IsMagnitude(p) {
			continue // see Magnitudes
		}
		fill := fills[p.Init.Dist]
		if fill == nil {
			return nil, fmt.Errorf("param %s starts as %q; known are normal, uniform and constant", p.Name, p.Init.Dist)
		}
		h := fnv.New64a()
		h.Write([]byte(p.Name))
		f[p.Name] = randomParam{fill, op.Key(seed, h.Sum64()), p.Init}
	}
	return f, nil
}

// random is how each param starts, by name.
type random map[string]randomParam

type randomParam struct {
	fill func(key uint64, scale float64, first int64, dst []float32)
	key  uint64
	init spec.Init
}

func (f random) Read(param string, first int64, dst []float32) error {
	s, ok := f[param]
	if !ok {
		return fmt.Errorf("param %s is not part of the model these weights were made for", param)
	}
	s.fill(s.key, s.init.Scale, first, dst)
	n := int64(len(dst))
	clear(dst[min(max(s.init.ZeroFrom-first, 0), n):min(max(s.init.ZeroTo-first, 0), n)])
	return nil
}

var fills = map[string]func(key uint64, scale float64, first int64, dst []float32){
	"normal":   fillNormal,
	"uniform":  fillUniform,
	"constant": fillConstant,
}

// fillNormal is Box and Muller's method: elements 2i and 2i+1 are the two numbers
// that the i-th pair of uniform ones gives.
func fillNormal(key uint64, scale float64, first int64, dst []float32) {
	for i := range dst {
		at := first + int64(i)
		if at%2 == 1 && i > 0 {
			continue // its pair wrote it
		}
		even, odd := normalPair(key, uint64(at/2))
		if at%2 == 1 {
			dst[i] = float32(scale * odd)
			continue
		}
		dst[i] = float32(scale * even)
		if i+1 < len(dst) {
			dst[i+1] = float32(scale * odd)
		}
	}
}

// normalPair takes the radius from one stream, shifted off zero where the logarithm has no
// value, and the angle from another.
func normalPair(key, i uint64) (float64, float64) {
	u := float64(op.Uniform(key, 0, i)) + 1.0/(1<<25)
	sin, cos := math.Sincos(2 * math.Pi * float64(op.Uniform(key, 1, i)))
	r := math.Sqrt(-2 * math.Log(u))
	return r * cos, r * sin
}

func fillUniform(key uint64, bound float64, first int64, dst []float32) {
	for i := range dst {
		u := float64(op.Uniform(key, 0, uint64(first)+uint64(i)))
		dst[i] = float32(bound * (2*u - 1))
	}
}

func fillConstant(_ uint64, value float64, _ int64, dst []float32) {
	for i := range dst {
		dst[i] = float32(value)
	}
}
