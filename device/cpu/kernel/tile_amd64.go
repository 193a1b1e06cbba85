package kernel

//go:noescape
func tileCols6AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols4AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols2AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols1AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows6AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows4AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows2AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows1AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols6AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols4AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols2AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileCols1AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows6AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows4AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows2AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func tileRows1AVX2(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)

//go:noescape
func packCopyAVX512(dst *float32, step int, src *float32, srcStep, k, width, panels int)

//go:noescape
func packCopyAVX2(dst *float32, step int, src *float32, srcStep, k, width, panels int)

//go:noescape
func packTransposeAVX512(dst *float32, dstStep int, src *float32, srcStep, k int)

//go:noescape
func packTransposeAVX2(dst *float32, dstStep int, src *float32, srcStep, k int)
