package machine

import (
	"math"
	"slices"
	"strings"

	"spillway/units"
)

// makers are words of a driver's names that tell nothing.
var makerWords = []string{"nvidia", "tesla", "geforce", "quadro"}

// variants are words that make another card of the one named before them.
var variantWords = []string{"ti", "super", "laptop", "d", "mobile", "max"}

// memoryOff is how far, as a share, the memory of a card may be from the listed one:
// drivers differ in what they set aside.
const memoryTolerance = 0.05

// NamedCard finds the listed card that a driver calls by a name such as "NVIDIA
// GeForce RTX 4090" or "NVIDIA A100-SXM4-80GB", which has so much memory.
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

// called says whether words name the card. A part of the card's name behind a dash
// that is a size is told by the memory, any other must be among the words.
func (c gpuModel) isCalled(words []string) bool {
	base, form, _ := strings.Cut(c.name, "-")
	if strings.Trim(form, "0123456789") != "" && !slices.Contains(words, form) {
		return false
	}
	if form == "" && slices.Contains(words, "pcie") && c.hasForm("pcie") {
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

// hasForm says whether the card is also listed in another form.
func (c gpuModel) hasForm(form string) bool {
	_, listed := findModel(c.name + "-" + form)
	return listed
}
