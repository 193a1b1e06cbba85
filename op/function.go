package op

import "math"

// function is a Func with its numbers.
type function struct {
	Func
	alpha, beta float64
}

func (a Attr) function() function { return function{a.Func, a.Alpha, a.Beta} }

// Value is f(x), Slope f'(x), in float64: what kernels of functions without a faster form compute.
func (a Attr) Value(x float64) float64 { return a.function().value(x) }
func (a Attr) Slope(x float64) float64 { return a.function().slope(x) }

// Defaults are PyTorch's numbers of a function, zeros for one that has none. Ok is false where a program
// must say them.
func (f Func) Defaults() (alpha, beta float64, ok bool) {
	switch f {
	case LeakyReLU:
		alpha = 0.01
	case ELU:
		alpha = 1
	case Softplus:
		alpha, beta = 1, 20
	case Clamp, Power:
		return 0, 0, false
	}
	return alpha, beta, true
}

// withNumbers has numbers to test a function with.
func (a Attr) withNumbers() Attr {
	a.Alpha, a.Beta, _ = a.Func.Defaults()
	switch a.Func {
	case Clamp:
		a.Alpha, a.Beta = -1, 1.5
	case Power:
		a.Alpha = 2.5
	}
	return a
}

// The numbers of SELU.
const (
	seluAlpha = 1.6732632423543772848170429916717
	seluScale = 1.0507009873554804934193349852946
)

// value is f(x).
func (f function) value(x float64) float64 {
	switch f.Func {
	case ReLU:
		return max(x, 0)
	case GELU:
		return x * normalCDF(x)
	case GELUTanh:
		return x / 2 * (1 + math.Tanh(geluInner(x)))
	case SiLU:
		return x * sigmoid(x)
	case Tanh:
		return math.Tanh(x)
	case Sigmoid:
		return sigmoid(x)
	case LeakyReLU:
		return choose(x > 0, x, f.alpha*x)
	case ELU:
		return choose(x > 0, x, f.alpha*math.Expm1(x))
	case SELU:
		return seluScale * choose(x > 0, x, seluAlpha*math.Expm1(x))
	case Softplus:
		return choose(x*f.alpha > f.beta, x, softplus(x*f.alpha)/f.alpha)
	case Mish:
		return x * math.Tanh(softplus(x))
	case Hardswish:
		return x * min(max(x+3, 0), 6) / 6
	case Hardsigmoid:
		return min(max(x+3, 0), 6) / 6
	case LogSigmoid:
		return -softplus(-x)
	case Softsign:
		return x / (1 + math.Abs(x))
	case Clamp:
		return min(max(x, f.alpha), f.beta)
	case Exp:
		return math.Exp(x)
	case Log:
		return math.Log(x)
	case Sqrt:
		return math.Sqrt(x)
	case Rsqrt:
		return 1 / math.Sqrt(x)
	case Abs:
		return math.Abs(x)
	case Square:
		return x * x
	case Power:
		return math.Pow(x, f.alpha)
	case Sin:
		return math.Sin(x)
	case Cos:
		return math.Cos(x)
	case Erf:
		return math.Erf(x)
	case Log1p:
		return math.Log1p(x)
	case Expm1:
		return math.Expm1(x)
	case Round:
		return math.RoundToEven(x)
	case Floor:
		return math.Floor(x)
	case Sign:
		return choose(x > 0, 1, choose(x < 0, -1, 0))
	}
	return math.NaN()
}

// slope is f'(x), at corners what PyTorch takes.
func (f function) slope(x float64) float64 {
	switch f.Func {
	case ReLU:
		return choose(x > 0, 1, 0)
	case GELU:
		return normalCDF(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	case GELUTanh:
		t := math.Tanh(geluInner(x))
		return (1+t)/2 + x/2*(1-t*t)*math.Sqrt(2/math.Pi)*(1+3*geluCubic*x*x)
	case SiLU:
		s := sigmoid(x)
		return s * (1 + x*(1-s))
	case Tanh:
		t := math.Tanh(x)
		return 1 - t*t
	case Sigmoid:
		s := sigmoid(x)
		return s * (1 - s)
	case LeakyReLU:
		return choose(x > 0, 1, f.alpha)
	case ELU:
		return choose(x > 0, 1, f.alpha*math.Exp(min(x, 0)))
	case SELU:
		return seluScale * choose(x > 0, 1, seluAlpha*math.Exp(min(x, 0)))
	case Softplus:
		return choose(x*f.alpha > f.beta, 1, sigmoid(x*f.alpha))
	case Mish:
		t := math.Tanh(softplus(x))
		return t + x*sigmoid(x)*(1-t*t)
	case Hardswish:
		return choose(x <= -3, 0, choose(x < 3, x/3+0.5, 1))
	case Hardsigmoid:
		return choose(x > -3 && x < 3, 1.0/6, 0)
	case LogSigmoid:
		return sigmoid(-x)
	case Softsign:
		return 1 / ((1 + math.Abs(x)) * (1 + math.Abs(x)))
	case Clamp:
		return choose(x >= f.alpha && x <= f.beta, 1, 0)
	case Exp:
		return math.Exp(x)
	case Log:
		return 1 / x
	case Sqrt:
		return 0.5 / math.Sqrt(x)
	case Rsqrt:
		return -0.5 / (x * math.Sqrt(x))
	case Abs:
		return choose(x > 0, 1, choose(x < 0, -1, 0))
	case Square:
		return 2 * x
	case Power:
		return choose(f.alpha == 0, 0, f.alpha*math.Pow(x, f.alpha-1))
	case Sin:
		return math.Cos(x)
	case Cos:
		return -math.Sin(x)
	case Erf:
		return 2 / math.Sqrt(math.Pi) * math.Exp(-x*x)
	case Log1p:
		return 1 / (1 + x)
	case Expm1:
		return math.Exp(x)
	case Round, Floor, Sign:
		return 0
	}
	return math.NaN()
}

func choose(is bool, yes, no float64) float64 {
	if is {
		return yes
	}
	return no
}

// softplus is log(1 + e^x) without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
