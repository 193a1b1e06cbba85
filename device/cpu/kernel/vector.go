package kernel

import "math"

// Add sets dst = x + y.
func Add(dst, x, y []float32) { active.add(dst, x[:len(dst)], y[:len(dst)]) }

// Mul sets dst = x·y, element by element.
func Mul(dst, x, y []float32) { active.mul(dst, x[:len(dst)], y[:len(dst)]) }

// AddMul adds x·y to dst, element by element.
func AddMul(dst, x, y []float32) { active.addMul(dst, x[:len(dst)], y[:len(dst)]) }

// Scale sets dst = s·x.
func Scale(dst, x []float32, s float32) { active.scale(dst, x[:len(dst)], s) }

// AddScaled adds s·x to dst.
func AddScaled(dst, x []float32, s float32) { active.addScaled(dst, x[:len(dst)], s) }

// Exp sets dst = e^x.
func Exp(dst, x []float32) { active.exp(dst, x[:len(dst)]) }

// chunk is how many elements a sum takes in single precision before the total goes
// on in double.
const chunk = 4096

// Sum is the sum of the elements.
func Sum(x []float32) (total float64) {
	for ; len(x) > chunk; x = x[chunk:] {
		total += float64(active.sum(x[:chunk]))
	}
	return total + float64(active.sum(x))
}

// Dot is the inner product.
func Dot(x, y []float32) (total float64) {
	y = y[:len(x)]
	for ; len(x) > chunk; x, y = x[chunk:], y[chunk:] {
		total += float64(active.dot(x[:chunk], y[:chunk]))
	}
	return total + float64(active.dot(x, y))
}

// Max is the largest element, -inf for none.
func Max(x []float32) float32 { return active.max(x) }

// SumSquares adds the squares in double precision.
func SumSquares(x []float32) float64 {
	n := len(x) &^ (lanesMost - 1)
	return active.squares(x[:n]) + squaresGo(x[n:])
}

// ExpSum sets dst = e^(x - shift) and returns the sum.
func ExpSum(dst, x []float32, shift float32) (total float64) {
	x = x[:len(dst)]
	for ; len(x) > chunk; dst, x = dst[chunk:], x[chunk:] {
		total += float64(active.expSum(dst[:chunk], x[:chunk], shift))
	}
	return total + float64(active.expSum(dst, x, shift))
}

func addGo(dst, x, y []float32) {
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func mulGo(dst, x, y []float32) {
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func addMulGo(dst, x, y []float32) {
	for i := range dst {
		dst[i] += x[i] * y[i]
	}
}

func scaleGo(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] = x[i] * s
	}
}

func addScaledGo(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] += x[i] * s
	}
}

func expGo(dst, x []float32) {
	for i := range dst {
		dst[i] = float32(math.Exp(float64(x[i])))
	}
}

func sumGo(x []float32) float32 {
	total := 0.0
	for _, v := range x {
		total += float64(v)
	}
	return float32(total)
}

func dotGo(x, y []float32) float32 {
	total := 0.0
	for i, v := range x {
		total += float64(v) * float64(y[i])
	}
	return float32(total)
}

func dot3Go(x, y, z []float32, shift float32) float32 {
	total := 0.0
	for i, v := range x {
		total += float64(v) * float64(y[i]) * float64(z[i]-shift)
	}
	return float32(total)
}

func maxGo(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

func expSumGo(dst, x []float32, shift float32) float32 {
	total := 0.0
	for i, v := range x {
		e := math.Exp(float64(v - shift))
		dst[i] = float32(e)
		total += e
	}
	return float32(total)
}

func squaresGo(x []float32) (total float64) {
	for _, v := range x {
		total += float64(v) * float64(v)
	}
	return total
}
