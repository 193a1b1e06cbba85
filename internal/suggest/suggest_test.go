package suggest

import "testing"

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"abc", "abc"}: 0, {"kitten", "kitchen"}: 2, {"", "ab"}: 2, {"lr", "rl"}: 2} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("%v: %d, want %d", pair, got, want)
		}
	}
}

func TestHint(t *testing.T) {
	among := []string{"plan", "train", "export"}
	if got := Hint("trian", among); got != "; did you mean train?" {
		t.Errorf("%q", got)
	}
	if got := Hint("xyz", among); got != "" {
		t.Errorf("%q", got)
	}
}
