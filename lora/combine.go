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
	adapter      *Adapter
	factor       float64
	rank         int64
	in, out      int64
	down, upName string
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
		s := lowRankPart{a, w.Weight * a.Options.scale(rank, alpha), down[0], down[1], a.Shape(up)[0], name, up}
		if other := parts[layer]; len(other) > 0 && (other[0].in != s.in || other[0].out != s.out) {
			return fmt.Errorf("its layer %s is [%d %d], another adapter's is [%d %d]", layer, s.out, s.in, other[0].out, other[0].in)
		}
		parts[layer] = append(parts[layer], s)
	}
	return nil
}

// joinParts concatenates the adapters of a layer and returns the sum of their ranks.
func (c *Adapter) joinParts(layer string, parts []lowRankPart) (rank int64) {
	for _, s := range parts {
		rank += s.rank
	}
	in, out := parts[0].in, parts[0].out
	c.tensors[layer+".lora_A.weight"] = tensor{shape.Shape{rank, in}, func(dst []float32, first int64) error {
		return readRange(dst, first, rank*in, func(all []float32) error { return stackRows(all, parts) })
	}}
	c.tensors[layer+".lora_B.weight"] = tensor{shape.Shape{out, rank}, func(dst []float32, first int64) error {
		return readRange(dst, first, out*rank, func(all []float32) error { return joinColumns(all, int(rank), parts) })
	}}
	return rank
}

// readRange makes a whole tensor, which is small, and copies the elements asked for.
func readRange(dst []float32, first, n int64, fill func(all []float32) error) error {
	all := make([]float32, n)
	err := fill(all)
	copy(dst, all[first:])
	return err
}

// stackRows concatenates the A matrices along their rows.
func stackRows(all []float32, parts []lowRankPart) error {
	for _, s := range parts {
		n := s.rank * s.in
		if err := s.adapter.Read(s.down, 0, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// joinColumns concatenates the B matrices along their columns, each times its factor.
func joinColumns(all []float32, rank int, parts []lowRankPart) error {
	column := 0
	for _, s := range parts {
		up, err := s.adapter.values(s.upName)
		if err != nil {
			return err
		}
		for i, f := range up {
			all[i/int(s.rank)*rank+column+i%int(s.rank)] = float32(s.factor * float64(f))
		}
		column += int(s.rank)
	}
	return nil
}

// Folder is what the adapter's folder is written from. base names the model it is for.
func (a *Adapter) Folder(base string) (hf.Adapter, error) {
	config, err := a.Options.PEFT(base, a.Transposed)
	out := hf.Adapter{Config: config}
	for _, name := range a.Params() {
		t := a.tensors[name]
		out.Tensors = append(out.Tensors, tensorfile.Output{Name: name, Type: dtype.F32, Shape: t.shape, Write: func(w io.Writer) error {
			all := make([]float32, t.shape.Elements())
			if err := t.read(all, 0); err != nil {
				return err
			}
			_, err := w.Write(quant.F32Bytes(all))
			return err
		}})
	}
	return out, err
}
