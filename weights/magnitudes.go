package weights

import (
	"fmt"
	"math"
	"strings"

	"spillway/nn"
	"spillway/shape"
	"spillway/spec"
)

// Magnitudes gives the magnitudes of DoRA adapters their initial values: the norm of each
// output of the adapted weight, with what the adapter adds at first. Weights and adapters
// are read from other values.
func Magnitudes(params []spec.Param, from Values) Values {
	l := magnitudes{from: from, params: map[string]spec.Param{}}
	for _, p := range params {
		l.params[p.Name] = p
	}
	return l
}

// IsMagnitude says whether a param starts as the magnitudes of others.
func IsMagnitude(p spec.Param) bool {
	return p.Init.Dist == nn.RowMagnitudes || p.Init.Dist == nn.ColumnMagnitudes
}

type magnitudes struct {
	from   Values
	params map[string]spec.Param
}

// Read computes the norms of the outputs from the first-th on.
func (l magnitudes) Read(param string, first int64, dst []float32) error {
	p, ok := l.params[param]
	module, _, cut := strings.Cut(param, ".lora_")
	if !ok || !cut || !IsMagnitude(p) {
		return fmt.Errorf("param %s is not the magnitude of an adapter", param)
	}
	a, err := l.adapter(module)
	if err != nil {
		return err
	}
	a.scale = p.Init.Scale
	sums := make([]float64, len(dst))
	if p.Init.Dist == nn.RowMagnitudes {
		err = l.rows(module, a, first, sums)
	} else {
		err = l.columns(module, a, first, sums)
	}
	for i, s := range sums {
		dst[i] = float32(math.Sqrt(s))
	}
	return err
}

// lowRank is what an adapter adds: element (o, i) is scale · Σr up[o r]·down[r i].
type lowRank struct {
	down, up []float32
	rank, in int64
	scale    float64
}

func (l magnitudes) adapter(module string) (lowRank, error) {
	down, up := l.params[module+".lora_A.weight"], l.params[module+".lora_B.weight"]
	a := lowRank{rank: down.Type.Shape[0], in: down.Type.Shape[1]}
	var err error
	if a.down, err = readWhole(l.from, down.Name, down.Type.Shape); err != nil {
		return a, err
	}
	a.up, err = readWhole(l.from, up.Name, up.Type.Shape)
	return a, err
}

func readWhole(from Values, param string, s shape.Shape) ([]float32, error) {
	out := make([]float32, s.Elements())
	return out, from.Read(param, 0, out)
}

func (a lowRank) at(o, i int64) (v float64) {
	for r := range a.rank {
		v += float64(a.up[o*a.rank+r]) * float64(a.down[r*a.in+i])
	}
	return a.scale * v
}

// rows adds up the squares of rows of a weight [out in].
func (l magnitudes) rows(module string, a lowRank, first int64, sums []float64) error {
	row := make([]float32, a.in)
	for k := range sums {
		o := first + int64(k)
		if err := l.from.Read(module+".weight", o*a.in, row); err != nil {
			return err
		}
		for i, w := range row {
			v := float64(w) + a.at(o, int64(i))
			sums[k] += v * v
		}
	}
	return nil
}

// columns adds up the squares of columns of a weight [in out].
func (l magnitudes) columns(module string, a lowRank, first int64, sums []float64) error {
	out := l.params[module+".weight"].Type.Shape[1]
	part := make([]float32, len(sums))
	for i := range a.in {
		if err := l.from.Read(module+".weight", i*out+first, part); err != nil {
			return err
		}
		for k, w := range part {
			v := float64(w) + a.at(first+int64(k), i)
			sums[k] += v * v
		}
	}
	return nil
}
