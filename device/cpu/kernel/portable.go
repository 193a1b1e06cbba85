package kernel

// portableCols is the width of a portable tile.
const portableCols = 8

// portable is the path in plain Go. It is also what the others are tested against.
func portable() *routines {
	r := &routines{
		name: "portable", mr: 4, nr: portableCols, heights: portableHeights,
		tileCols: [maxRows + 1]tileFunc{1: tileColsGo(1), 4: tileColsGo(4)},
		tileRows: [maxRows + 1]tileFunc{1: tileRowsGo(1), 4: tileRowsGo(4)},
		packCopy: packCopyGo, packTranspose: packTransposeGo,
		exp: expGo, add: addGo, mul: mulGo, addMul: addMulGo, scale: scaleGo, addScaled: addScaledGo, rotate: rotateGo,
		sum: sumGo, max: maxGo, squares: squaresGo, dot: dotGo, dot3: dot3Go, spread: spreadGo, expSum: expSumGo,
		norm: normGo, normGrad: normGradGo, normWeight: normWeightGo,
		columnMax: columnMaxGo, columnExp: columnExpGo, columnGrad: columnGradGo,
		adam: adamGo, sgd: sgdGo,
		fromBF16: fromBF16Go, fromF16: fromF16Go, toBF16: toBF16Go, toF16: toF16Go,
	}
	for f := range funcs {
		r.activations[f] = plainActivation(f)
	}
	return r
}
