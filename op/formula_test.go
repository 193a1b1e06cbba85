package op

import "testing"

// The operations of a formula compute what their names say.
func TestFormulasComputeWhatTheyAreCalled(t *testing.T) {
	f := NewFormula(0, "rate")
	x, y, z := f.Weight(), f.Gradient(), f.Scalar("rate")
	wants := []struct {
		name string
		is   Number
		want float32
	}{
		{"4 + 2", f.Add(x, y), 6}, {"4 - 2", f.Sub(x, y), 2}, {"4 · 2", f.Mul(x, y), 8}, {"4 / 2", f.Div(x, y), 2}, {"4 · 2 + 0.5", f.FMA(x, y, z), 8.5},
		{"√4", f.Sqrt(x), 2}, {"the sign of 4", f.Sign(x), 1}, {"2 where 4", f.Where(x, y, z), 2}, {"2 where 4 - 4", f.Where(f.Sub(x, x), z, y), 2}, {"a constant", f.Constant(3), 3},
	}
	values := f.Values([]float32{4, 2, 0.5}, nil, func(int) bool { return false })
	for _, w := range wants {
		if got := values[w.is]; got != w.want {
			t.Errorf("%s is %v, want %v", w.name, got, w.want)
		}
	}
}
