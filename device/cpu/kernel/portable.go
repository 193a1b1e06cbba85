package kernel

// portableCols is the width of a portable tile.
const portableCols = 8

// portable is the path in plain Go. The others start from it and replace what they
// do faster.
func portable() *routines {
	return &routines{
		name: "portable", mr: 4, nr: portableCols, heights: portableHeights,
		tileCols: [maxRows + 1]tileFunc{1: tileColsGo(1), 4: tileColsGo(4)},
		tileRows: [maxRows + 1]tileFunc{1: tileRowsGo(1), 4: tileRowsGo(4)},
		packCopy: packCopyGo, packTranspose: packTransposeGo,
	}
}
