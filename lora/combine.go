package lora

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/hf"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// Combine makes one adapter that adds what several add together, each times its weight. It
// concatenates their matrices, so nothing is lost, and its rank is the sum of theirs. The
// adapters must stay open. Those that train more than low-rank matrices (DoRA, biases,
// saved modules) are refused.
func Combine(name string, list []Weighted) (*Adapter, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("combining no adapters")
	}
	c := &Adapter{Name: name, Transposed: list[0].Adapter.Transposed, tensors: map[string]tensor{}, close: func() error { return nil }}
	parts := map[string][]lowRankPart{} // by layer
	for _, w := range list {
		if err := errors.Join(w.check(), collectParts(w, parts)); err != nil {
			return nil, fmt.Errorf("combining %s: %w", w.Adapter.Name, err)
		}
	}
	c.Options = Options{Rank: 1, Alpha: 1, RankPattern: map[string]int64{}, AlphaPattern: map[string]float64{}}
	for layer, p := range parts {
		rank := c.joinParts(layer, p)
		exact := regexp.QuoteMeta(layer)
		c.Options.Targets = append(c.Options.Targets, layer)
		c.Options.RankPattern[exact], c.Options.AlphaPattern[exact] = rank, float64(rank) // a scale of 1
	}
	slices.Sort(c.Options.Targets)
	return c, nil
}

// lowRankPart is one adapter of a layer and the factor it is multiplied by.
type lowRankPart struct {
	adapter       *Adapter
	factor        float64
	rank, in, out int64
}

// collectParts adds the layers of an adapter to parts, which has them by layer.
func collectParts(w Weighted, parts map[string][]lowRankPart) error {
	a := w.Adapter
	sizes, err := a.Options.rankAndAlpha()
	if err != nil {
		return err
	}
	for _, name := range a.Params() {
		layer, ok := strings.CutSuffix(name, ".lora_A.weight")
		up := layer + ".lora_B.weight"
		switch {
		case ok && a.Has(up):
		case strings.HasSuffix(name, ".lora_B.weight"):
			continue
		default:
			return fmt.Errorf("it has %s, which is not part of a low-rank pair", name)
		}
		down := a.Shape(name)
		rank, alpha := sizes(layer)
		s := lowRankPart{a, w.Weight * a.Options.scale(rank, alpha), down[0], down[1], a.Shape(up)[0]}
		if other := parts[layer]; len(other) > 0 && (other[0].in != s.in || other[0].out != s.out) {
			return fmt.Errorf("its layer %s is [%d %d], another adapter's is [%d %d]", layer, s.out, s.in, other[0].out, other[0].in)
		}
		parts[layer] = append(parts[layer], s)
	}
	return nil
}

// joinParts concatenates the adapters of a layer, each B times its factor, and returns the
// sum of their ranks.
func (c *Adapter) joinParts(layer string, parts []lowRankPart) (rank int64) {
	for _, s := range parts {
		rank += s.rank
	}
	down, up := layer+".lora_A.weight", layer+".lora_B.weight"
	c.tensors[down] = joined(shape.Shape{rank, parts[0].in}, func(all []float32) error { // along their rows
		for _, s := range parts {
			n := s.rank * s.in
			if err := s.adapter.Read(down, 0, all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
		return nil
	})
	c.tensors[up] = joined(shape.Shape{parts[0].out, rank}, func(all []float32) error { // along their columns
		column := 0
		for _, s := range parts {
			list, err := s.adapter.values(up)
			if err != nil {
				return err
			}
			for i, f := range list {
				all[i/int(s.rank)*int(rank)+column+i%int(s.rank)] = float32(s.factor * float64(f))
			}
			column += int(s.rank)
		}
		return nil
	})
	return rank
}

// joined is a tensor that is made whole, for it is small, whenever elements are asked for.
func joined(s shape.Shape, fill func(all []float32) error) tensor {
	return tensor{s, func(dst []float32, first int64) error {
		all := make([]float32, s.Elements())
		err := fill(all)
		copy(dst, all[first:])
		return err
	}}
}

// Folder is what the adapter's folder is written from. base names the model it is for.
func (a *Adapter) Folder(base string) (hf.Adapter, error) {
	config, err := a.Options.PEFT(base, a.Transposed)
	out := hf.Adapter{Config: config}
	for _, name := range a.Params() {
		t := a.tensors[name]
		out.Tensors = append(out.Tensors, tensorfile.Output{Name: name, Type: dtype.F32, Shape: t.shape, Write: func(w io.Writer) error {
			all, err := a.values(name)
			if err != nil {
				return err
			}
			_, err = w.Write(quant.F32Bytes(all))
			return err
		}})
	}
	return out, err
}
