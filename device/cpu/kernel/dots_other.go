//go:build !amd64

package kernel

func bf16Dots(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int) {}

func bf16FourDots(rows, k int, a *float32, aStep int, b *uint16, bStep int, sums *float32, sumStep, ahead int) {
}
