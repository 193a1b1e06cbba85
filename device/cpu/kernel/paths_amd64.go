package kernel

import (
	"golang.org/x/sys/cpu"

	"spillway/op"
)

// available lists the paths this CPU can run, slowest first.
func available() []*routines {
	all := []*routines{portable()}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, avx2())
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
		all = append(all, avx512())
	}
	return all
}

func avx512() *routines {
	r := &routines{name: "avx512", mr: 6, nr: 64}
	r.heights = []int{6, 4, 2, 1}
	r.tileCols = [maxRows + 1]tileFunc{1: tileCols1AVX512, 2: tileCols2AVX512, 4: tileCols4AVX512, 6: tileCols6AVX512}
	r.tileRows = [maxRows + 1]tileFunc{1: tileRows1AVX512, 2: tileRows2AVX512, 4: tileRows4AVX512, 6: tileRows6AVX512}
	r.lineCols, r.lineRows, r.linePairs = lineColsAVX512, lineRowsAVX512, true
	r.saturate, r.chains = saturateAVX512, 24*16
	r.packCopy, r.packTranspose = packCopyAVX512, packStrips(16, packTransposeAVX512)
	r.planes, r.runWeights, r.planeWeights, r.planeFill = planesAVX512(), runWeightsAVX512(), planeWeightsAVX2, planeFillAVX2
	r.runWeightsOfThree = runWeights3x9AVX512
	r.winograd, r.depthwise, r.depthwiseWide = winogradAVX2(), depthwiseAVX2(), depthwiseAVX512()
	r.depthwiseWeights, r.strided, r.nonTemporal, r.largest = depthwiseWeightsAVX2(), stridedAVX2(), nonTemporalAVX2, largestAVX2
	r.bf16, r.f16, r.packed, r.pairs, r.compressed = bf16AVX2(), f16AVX2(), packedAVX512(), pairsAVX512(), compressedAVX512()
	r.three = [ThreeRows + 1]threeFunc{1: three1AVX512, 2: three2AVX512, 4: three4AVX512}
	r.threeWeights = [ThreeRows + 1]threeFunc{1: threeWeights1AVX512, 2: threeWeights2AVX512, 4: threeWeights4AVX512}
	r.seven = [sevenMost + 1]sevenFunc{4: seven4AVX512, 7: seven7AVX512, 8: seven8AVX512}
	r.groupsThree = [ThreeRows + 1]groupsThreeFunc{1: groupsThree1AVX512, 2: groupsThree2AVX512, 4: groupsThree4AVX512}
	r.groupsThreeWeights = [ThreeRows + 1]groupsThreeFunc{1: groupsThreeWeights1AVX512, 2: groupsThreeWeights2AVX512, 4: groupsThreeWeights4AVX512}
	r.activations = [funcs]activation{
		op.ReLU:     {reluAVX512, reluTimesAVX512, reluSlopeAVX512, reluGatedAVX512},
		op.GELU:     {geluAVX512, geluTimesAVX512, geluSlopeAVX512, geluGatedAVX512},
		op.GELUTanh: {geluTanhAVX512, geluTanhTimesAVX512, geluTanhSlopeAVX512, geluTanhGatedAVX512},
		op.SiLU:     {siluAVX512, siluTimesAVX512, siluSlopeAVX512, siluGatedAVX512},
		op.Tanh:     {tanhAVX512, tanhTimesAVX512, tanhSlopeAVX512, tanhGatedAVX512},
		op.Sigmoid:  {sigmoidAVX512, sigmoidTimesAVX512, sigmoidSlopeAVX512, sigmoidGatedAVX512},
	}
	r.exp, r.add, r.mul, r.addMul, r.scale, r.addScaled = expAVX512, addAVX512, mulAVX512, addMulAVX512, scaleAVX512, addScaledAVX512
	r.rotate, r.angles, r.sum, r.max, r.squares, r.dot, r.dot3 = rotateAVX512, anglesAVX512, sumAVX512, maxAVX512, squaresAVX512, dotAVX512, dot3AVX512
	r.spread, r.expSum = spreadAVX512, expSumAVX512
	r.norm, r.normGrad, r.normWeight = normAVX512, normGradAVX512, normWeightAVX512
	r.columnMax, r.columnExp, r.columnGrad = columnMaxAVX512, columnExpAVX512, columnGradAVX512
	r.drop, r.dropLine, r.roundStates, r.roundWeights = dropAVX512, dropLineAVX2, roundStatesAVX512, roundWeightsAVX512
	r.touch, r.adam, r.sgd, r.sgdBare, r.lion, r.rmsprop = touchAVX512, adamAVX512, sgdAVX512, sgdBareAVX512, lionAVX512, rmspropAVX512
	r.fourBit, r.fromDynamic, r.dots, r.wideDots = fourBitAVX512, fromDynamicAVX512, true, true
	return r
}

func avx2() *routines {
	r := &routines{name: "avx2", mr: 6, nr: 16}
	r.heights = []int{6, 4, 2, 1}
	r.tileCols = [maxRows + 1]tileFunc{1: tileCols1AVX2, 2: tileCols2AVX2, 4: tileCols4AVX2, 6: tileCols6AVX2}
	r.tileRows = [maxRows + 1]tileFunc{1: tileRows1AVX2, 2: tileRows2AVX2, 4: tileRows4AVX2, 6: tileRows6AVX2}
	r.lineCols, r.lineRows = lineColsAVX2, lineRowsAVX2
	r.saturate, r.chains = saturateAVX2, 12*8
	r.packCopy, r.packTranspose = packCopyAVX2, packStrips(8, packTransposeAVX2)
	r.planes[0], r.planeWeights, r.planeFill, r.winograd, r.depthwise = planesAVX2(), planeWeightsAVX2, planeFillAVX2, winogradAVX2(), depthwiseAVX2()
	r.depthwiseWeights, r.strided, r.nonTemporal, r.largest = depthwiseWeightsAVX2(), stridedAVX2(), nonTemporalAVX2, largestAVX2
	r.bf16, r.f16, r.packed, r.pairs, r.compressed = bf16AVX2(), f16AVX2(), packedAVX2(), portablePairs(), compressedAVX2()
	r.bf16.together, r.f16.together = togetherBF16AVX2, togetherF16AVX2
	r.activations = [funcs]activation{
		op.ReLU:     {reluAVX2, reluTimesAVX2, reluSlopeAVX2, reluGatedAVX2},
		op.GELU:     {geluAVX2, geluTimesAVX2, geluSlopeAVX2, geluGatedAVX2},
		op.GELUTanh: {geluTanhAVX2, geluTanhTimesAVX2, geluTanhSlopeAVX2, geluTanhGatedAVX2},
		op.SiLU:     {siluAVX2, siluTimesAVX2, siluSlopeAVX2, siluGatedAVX2},
		op.Tanh:     {tanhAVX2, tanhTimesAVX2, tanhSlopeAVX2, tanhGatedAVX2},
		op.Sigmoid:  {sigmoidAVX2, sigmoidTimesAVX2, sigmoidSlopeAVX2, sigmoidGatedAVX2},
	}
	r.exp, r.add, r.mul, r.addMul, r.scale, r.addScaled = expAVX2, addAVX2, mulAVX2, addMulAVX2, scaleAVX2, addScaledAVX2
	r.rotate, r.angles, r.sum, r.max, r.squares, r.dot, r.dot3 = rotateAVX2, anglesAVX2, sumAVX2, maxAVX2, squaresAVX2, dotAVX2, dot3AVX2
	r.spread, r.expSum = spreadAVX2, expSumAVX2
	r.norm, r.normGrad, r.normWeight = normAVX2, normGradAVX2, normWeightAVX2
	r.columnMax, r.columnExp, r.columnGrad = columnMaxAVX2, columnExpAVX2, columnGradAVX2
	r.drop, r.dropLine, r.roundStates, r.roundWeights = dropGo, dropLineAVX2, roundStatesAVX2, roundWeightsAVX2
	r.touch, r.adam, r.sgd, r.sgdBare, r.lion, r.rmsprop = touchAVX2, adamAVX2, sgdAVX2, sgdBareAVX2, lionAVX2, rmspropAVX2
	r.fourBit, r.fromDynamic, r.dots = fourBitAVX2, fromDynamicGo, true
	return r
}

// laneMask masks the columns of a partial AVX2 tile: n columns start at 16-n.
var laneMask = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
