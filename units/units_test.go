package units

import "testing"

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{
		"24GiB": 24 << 30, "80 GB": 80e9, "512mib": 512 << 20, "1.5KiB": 1536, "77": 77, "2T": 2e12,
	} {
		got, err := ParseBytes(in)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "GiB", "12 parsecs", "-3GiB", "1e999", "99999999999TiB"} {
		if v, err := ParseBytes(bad); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", bad, v)
		}
	}
}

func TestParseRates(t *testing.T) {
	if r, err := ParseRate("55.5GB/s"); err != nil || r != 55.5e9 {
		t.Errorf("ParseRate = %v, %v", r, err)
	}
	if f, err := ParseFlops("312 TFLOPS"); err != nil || f != 312e12 {
		t.Errorf("ParseFlops = %v, %v", f, err)
	}
	for _, bad := range []string{"0GB/s", "fast", ""} {
		if _, err := ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) accepted", bad)
		}
		if _, err := ParseFlops(bad); err == nil && bad != "0GB/s" {
			t.Errorf("ParseFlops(%q) accepted", bad)
		}
	}
}

func TestPrint(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(24 << 30).String(), "24.0 GiB"},
		{Bytes(1000).String(), "1000 B"},
		{Bytes(999 << 20).String(), "999 MiB"},
		{(-GiB).String(), "-1.00 GiB"},
		{Rate(55.5e9).String(), "55.5 GB/s"},
		{Flops(790e12).String(), "790 TFLOP/s"},
		{Count(8_030_261_248), "8.03 B"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
