package machine

import (
	"math"
	"slices"
	"strings"

	"spillway/units"
)

// makerWords are words in a driver's names that do not tell GPUs apart.
var makerWords = []string{"nvidia", "tesla", "geforce", "quadro"}

// variantWords follow the name of a GPU and make it another one, as in "4070 Ti".
var variantWords = []string{"ti", "super", "laptop", "d", "mobile", "max"}

// memoryTolerance is the largest relative difference between the memory of a GPU and the
// listed one: drivers differ in what they set aside.
const memoryTolerance = 0.05

// FindGPU finds the listed GPU by the name its driver gives it, such as "NVIDIA GeForce RTX
// 4090" or "NVIDIA A100-SXM4-80GB", and by its memory.
func FindGPU(driverName string, memory units.Bytes) (name string, ok bool) {
	words := slices.DeleteFunc(strings.FieldsFunc(strings.ToLower(driverName), func(r rune) bool { return r == ' ' || r == '-' }),
		func(w string) bool { return slices.Contains(makerWords, w) })
	best := memoryTolerance
	for _, c := range gpuModels {
		off := math.Abs(float64(memory-c.memory)) / float64(c.memory)
		if off < best && c.isCalled(words) {
			name, ok, best = c.name, true, off
		}
	}
	return name, ok
}

// isCalled says whether the words name this model. Behind the dashes of a listed name are a
// memory size, which the caller compares, and words such as "pcie", which must be among
// the words.
func (c gpuModel) isCalled(words []string) bool {
	base, form, _ := strings.Cut(c.name, "-")
	pcie := false
	for word := range strings.SplitSeq(form, "-") {
		if strings.Trim(word, "0123456789") != "" && !slices.Contains(words, word) {
			return false
		}
		pcie = pcie || word == "pcie"
	}
	if _, listed := findModel(c.name + "-pcie"); listed && !pcie && slices.Contains(words, "pcie") {
		return false
	}
	for from := range words {
		for to := from + 1; to <= len(words); to++ {
			if strings.TrimPrefix(strings.Join(words[from:to], ""), "rtx") != strings.TrimPrefix(base, "rtx") {
				continue
			}
			return to == len(words) || !slices.Contains(variantWords, words[to])
		}
	}
	return false
}
