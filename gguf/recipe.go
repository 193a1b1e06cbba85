package gguf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
)

// Recipes name how the tensors of a file are stored, as llama.cpp names them.
var recipes = []struct {
	name   string
	number int64 // general.file_type
	linear dtype.Type
}{
	{"f32", 0, dtype.F32}, {"f16", 1, dtype.F16}, {"bf16", 32, dtype.BF16}, {"q8_0", 7, quant.Q8_0}, {"q4_0", 2, quant.Q4_0}, {"q4_k_m", 15, quant.Q4_K},
}

// Recipe is how the tensors of a file are stored.
type Recipe struct {
	Name   string
	Number int64
	layers int
	tied   bool
	linear dtype.Type
}

// Recipes lists the names.
func Recipes() (names []string) {
	for _, r := range recipes {
		names = append(names, r.name)
	}
	return names
}

// NewRecipe finds a recipe for a model of some layers; tied: it has no head of its own.
func NewRecipe(name string, layers int, tied bool) (Recipe, error) {
	for _, r := range recipes {
		if r.name == strings.ToLower(name) {
			return Recipe{r.name, r.number, layers, tied, r.linear}, nil
		}
	}
	return Recipe{}, fmt.Errorf("a GGUF file cannot be written as %q; known are %s", name, strings.Join(Recipes(), ", "))
}

// Type is what a tensor of the file is stored as: vectors in f32, matrices as the recipe says.
// q4_k_m gives six bits to the head, and to values and down projections of the layers that
// need it most. Rows that are not whole blocks take a type with smaller blocks.
func (r Recipe) Type(name string, s shape.Shape) dtype.Type {
	if len(s) < 2 {
		return dtype.F32
	}
	kind := r.linear
	if r.Name == "q4_k_m" {
		head := name == "output.weight" || r.tied && name == "token_embd.weight"
		if m := layerPattern.FindStringSubmatch(name); head || m != nil && slices.Contains([]string{"attn_v", "ffn_down"}, m[2]) && r.needsMore(m[1]) {
			kind = quant.Q6_K
		}
	}
	smaller := map[dtype.Type]dtype.Type{quant.Q4_K: quant.Q5_0, quant.Q6_K: quant.Q8_0}
	for _, to := range []dtype.Type{kind, smaller[kind]} {
		if c := quant.Of(to); to != dtype.Invalid && (c == nil || s.Last()%int64(c.Block) == 0) {
			return to
		}
	}
	return dtype.F16
}

// needsMore says whether a layer is among the first and last eighth, or every third between.
func (r Recipe) needsMore(layer string) bool {
	i, _ := strconv.Atoi(layer) // digits, by the pattern
	eighth := r.layers / 8
	return i < eighth || i >= 7*r.layers/8 || (i-eighth)%3 == 2
}

// FileName is what a GGUF file of architecture llama, qwen2 or qwen3 calls a tensor of
// transformers.
func FileName(tensor string) (string, error) {
	for file, name := range outerNames {
		if name == tensor {
			return file, nil
		}
	}
	if rest, ok := strings.CutPrefix(tensor, "model.layers."); ok {
		layer, rest, _ := strings.Cut(rest, ".")
		at := strings.LastIndex(rest, ".")
		for file, name := range layerNames {
			if at > 0 && name == rest[:at] {
				return "blk." + layer + "." + file + rest[at:], nil
			}
		}
	}
	return "", fmt.Errorf("a GGUF file has no name for the tensor %q", tensor)
}

// PermutedRow is the row of transformers that row r of a file's q or k holds, in heads of so
// many rows.
func PermutedRow(r, headRows int64) int64 {
	head, within := r/headRows, r%headRows
	return head*headRows + within%2*(headRows/2) + within/2
}

// LlamaFactors are the numbers of the tensor of rotary factors of Llama 3.1's scaling.
func LlamaFactors(theta, factor, low, high, original float64, head int) []float32 {
	list := make([]float32, head/2)
	for i := range list {
		list[i] = float32(llama3Factor(theta, factor, low, high, original, i, head))
	}
	return list
}
