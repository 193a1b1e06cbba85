package kernel

import (
	"spillway/dtype"
	"spillway/op"
)

// portable is the path in plain Go. It is also what the others are tested against.
func portable() *routines {
	r := &routines{
		name: "portable", mr: portableSide, nr: portableSide, heights: []int{portableSide, 1},
		tileCols: [maxRows + 1]tileFunc{1: tileColsGo(1), portableSide: tileColsGo(portableSide)},
		tileRows: [maxRows + 1]tileFunc{1: tileRowsGo(1), portableSide: tileRowsGo(portableSide)},
		bf16:     portableHalf(dtype.BF16), f16: portableHalf(dtype.F16),
		packed: portablePacked(), pairs: portablePairs(), compressed: portableCompressed(),
		saturate: saturateGo, chains: 8,
		packCopy: packCopyGo, packTranspose: packTransposeGo,
		planes: [len(planeWidths)][planeRows + 1]planeFunc{planesGo()}, planeWeights: planeWeightsGo, planeFill: planeFillGo, winograd: winogradGo(), strided: stridedGo(), depthwise: depthwiseGo(), depthwiseWeights: depthwiseWeightsGo(),
		three: threeGo(), threeWeights: threeWeightsGo(), seven: sevenGo(), groupsThree: groupsThreeGo(), groupsThreeWeights: groupsThreeWeightsGo(),
		exp: expGo, add: addGo, mul: mulGo, addMul: addMulGo, scale: scaleGo, addScaled: addScaledGo, rotate: rotateGo, angles: anglesGo,
		sum: sumGo, max: maxGo, squares: squaresGo, dot: dotGo, dot3: dot3Go, spread: spreadGo, expSum: expSumGo,
		norm: normGo, normGrad: normGradGo, normWeight: normWeightGo,
		columnMax: columnMaxGo, columnExp: columnExpGo, columnGrad: columnGradGo,
		drop: dropGo, dropLine: dropLineGo, roundStates: roundStatesGo, roundWeights: roundWeightsGo,
		touch: touchGo, adam: adamGo, sgd: sgdGo, sgdBare: sgdBareGo, lion: lionGo, rmsprop: rmspropGo,
		fourBit: fourBitGo, fromDynamic: fromDynamicGo,
	}
	for f := op.ReLU; f < funcs; f++ {
		r.activations[f] = plainActivation(f)
	}
	return r
}
