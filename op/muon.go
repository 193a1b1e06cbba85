package op

import "math"

// MuonIterations is how often Muon applies its polynomial to a momentum, and MuonEps the least norm that it
// divides one by. They are PyTorch's; references and kernels share them.
const (
	MuonIterations = 5
	MuonEps        = 1e-7
)

// MuonCoefficients are those of x, x³ and x⁵ in a polynomial that brings all singular values near 1, between
// about 0.7 and 1.2.
var MuonCoefficients = [3]float64{3.4445, -4.775, 2.0315}

// MuonFactor is what Muon multiplies the rate of a matrix of rows and columns by: with match, so that steps
// are as large as AdamW's.
func MuonFactor(rows, cols int64, match bool) float64 {
	if match {
		return 0.2 * math.Sqrt(float64(max(rows, cols)))
	}
	return math.Sqrt(max(1, float64(rows)/float64(cols)))
}
