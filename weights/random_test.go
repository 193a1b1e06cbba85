package weights_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spillway/nn"
	"spillway/spec"
	"spillway/weights"
)

func random(t *testing.T, seed uint64, inits map[string]nn.Init) weights.Values {
	t.Helper()
	var params []spec.Param
	for name, init := range inits {
		params = append(params, spec.Param{Name: name, Init: init})
	}
	s, err := weights.Random(params, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func numbers(t *testing.T, s weights.Values, param string, first int64, n int) []float32 {
	t.Helper()
	dst := make([]float32, n)
	if err := s.Read(param, first, dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

// moments are the mean, the standard deviation and the fourth moment over the
// square of the second, which is 3 for a normal distribution and 9/5 for a uniform.
func moments(list []float32) (mean, std, kurtosis float64) {
	n := float64(len(list))
	for _, f := range list {
		mean += float64(f) / n
	}
	var second, fourth float64
	for _, f := range list {
		d := float64(f) - mean
		second += d * d / n
		fourth += d * d * d * d / n
	}
	return mean, math.Sqrt(second), fourth / (second * second)
}

func TestFreshNumbersHaveTheirDistribution(t *testing.T) {
	const n = 400_000
	s := random(t, 7, map[string]nn.Init{"normal": nn.Normal(0.02), "uniform": nn.Uniform(0.5), "one": nn.Constant(1)})
	// The bounds are five standard errors.
	for _, c := range []struct {
		name           string
		std, kurtosis  float64
		allowMean      float64
		allowStd, kurt float64
	}{
		{"normal", 0.02, 3, 5 * 0.02 / math.Sqrt(n), 5 * 0.02 / math.Sqrt(2*n), 5 * math.Sqrt(24.0/n)},
		{"uniform", 0.5 / math.Sqrt(3), 1.8, 5 * 0.29 / math.Sqrt(n), 5 * 0.29 / math.Sqrt(2*n), 0.02},
	} {
		mean, std, kurtosis := moments(numbers(t, s, c.name, 0, n))
		if math.Abs(mean) > c.allowMean || math.Abs(std-c.std) > c.allowStd || math.Abs(kurtosis-c.kurtosis) > c.kurt {
			t.Errorf("%s: mean %v, standard deviation %v, kurtosis %v; want 0, %v, %v", c.name, mean, std, kurtosis, c.std, c.kurtosis)
		}
	}
	if all := numbers(t, s, "uniform", 0, n); slices.Max(all) > 0.5 || slices.Min(all) < -0.5 {
		t.Errorf("uniform numbers from %v to %v", slices.Min(all), slices.Max(all))
	}
	if all := numbers(t, s, "one", 3, 5); !slices.Equal(all, []float32{1, 1, 1, 1, 1}) {
		t.Errorf("constants %v", all)
	}
}

// An element depends on seed, name and index, not on how it is asked for.
func TestFreshNumbersArePure(t *testing.T) {
	inits := map[string]nn.Init{"a": nn.Normal(1), "b": nn.Normal(1), "u": nn.Uniform(1), "padded": nn.NewEmbedding(9, 4).WithPadding(2).Weight.Init}
	s := random(t, 1, inits)
	for i, n := range numbers(t, s, "padded", 0, 36) {
		if (n == 0) != (i/4 == 2) {
			t.Errorf("element %d of an embedding whose row 2 is padding starts at %v", i, n)
		}
	}
	for _, name := range []string{"a", "u", "padded"} {
		whole := numbers(t, s, name, 0, 101)
		for first := range 20 {
			for n := range 20 {
				if got := numbers(t, s, name, int64(first), n); !slices.Equal(got, whole[first:first+n]) {
					t.Fatalf("%s: %d numbers from %d are %v, in one piece %v", name, n, first, got, whole[first:first+n])
				}
			}
		}
	}
	if slices.Equal(numbers(t, s, "a", 0, 50), numbers(t, s, "b", 0, 50)) {
		t.Error("two params of one distribution start alike")
	}
	if slices.Equal(numbers(t, s, "a", 0, 50), numbers(t, random(t, 2, inits), "a", 0, 50)) {
		t.Error("two seeds give the same numbers")
	}
	if !slices.Equal(numbers(t, s, "a", 0, 50), numbers(t, random(t, 1, inits), "a", 0, 50)) {
		t.Error("one seed gives different numbers")
	}
}

func TestFreshRefuses(t *testing.T) {
	if _, err := weights.Random([]spec.Param{{Name: "w", Init: nn.Init{Dist: "cauchy"}}}, 0); err == nil || !strings.Contains(err.Error(), "cauchy") {
		t.Errorf("an unknown distribution: %v", err)
	}
	if err := random(t, 0, nil).Read("w", 0, make([]float32, 1)); err == nil || !strings.Contains(err.Error(), "w is not part") {
		t.Errorf("an unknown param: %v", err)
	}
}
