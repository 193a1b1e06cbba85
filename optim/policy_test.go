package optim

import (
	"strings"
	"testing"

	"spillway/shape"
)

// begins is the first iteration after which states are compressed, 0 for never.
func begins(p Policy, losses ...float64) int {
	c := p.Begin()
	if c.Active {
		return -1
	}
	for i, loss := range losses {
		if c = p.Next(c, int64(i+1), loss); c.Active {
			return i + 1
		}
	}
	return 0
}

func TestPoliciesBegin(t *testing.T) {
	falling := []float64{9, 8, 7, 6, 5, 4, 3, 2}
	plateau := []float64{9, 8, 7, 7, 6.9999, 7.1, 7, 7, 7}
	for _, c := range []struct {
		policy string
		losses []float64
		want   int
	}{
		{"", falling, 0},
		{"auto:warmup=3", falling, 3},
		{"auto:warmup=0", falling, -1},
		{"max-compression", falling, -1},
		{"auto:warmup=0,patience=3", falling, 0},
		{"auto:warmup=0,patience=3", plateau, 6}, // 7 was lowest at 3; 6.9999 is not lower by a thousandth
		{"auto:warmup=8,patience=3", plateau, 8},
		{"auto:warmup=0,patience=3,tol=0", plateau, 8}, // 6.9999 at 5 counts
		{"low-memory", falling, 0},
		{"low-memory", make([]float64, 12), 10},
	} {
		p, err := ParsePolicy(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		if got := begins(p, c.losses...); got != c.want {
			t.Errorf("%q compresses after iteration %d, want %d", c.policy, got, c.want)
		}
		if again, err := ParsePolicy(p.String()); err != nil || again != p {
			t.Errorf("%q writes itself %q, which reads as %+v (%v)", c.policy, p, again, err)
		}
	}
	p, _ := ParsePolicy("auto:warmup=1")
	if c := p.Next(p.Next(p.Begin(), 1, 5), 2, 1); !c.Active {
		t.Error("what is compressed is expanded again")
	}
}

// Each preset makes of Adam's two states what it says.
func TestPresetsCompress(t *testing.T) {
	for policy, want := range map[string]string{
		"auto": "dyn8 f32", "low-memory": "dyn8 f16", "max-compression": "dyn8 udyn8", "auto:codecs=exp_avg_sq:bf16": "f32 bf16",
	} {
		p, err := ParsePolicy(policy)
		if err != nil {
			t.Fatal(err)
		}
		statesFor, err := p.Compressed(parse(t, "adamw")).StatesFor(nil)
		if err != nil {
			t.Fatal(err)
		}
		states := statesFor("w", shape.Of(5000))
		if got := states[0].Type.DType.String() + " " + states[1].Type.DType.String(); got != want {
			t.Errorf("%s makes %s, want %s", policy, got, want)
		}
	}
}

func TestPolicyErrors(t *testing.T) {
	for text, says := range map[string]string{
		"best": "there are auto, low-memory, max-compression", "auto:warmup=-1": "none can be negative", "auto:home=disk": "device or host", "auto:codecs=mean:8bit": "there are exp_avg",
		"auto:codecs=exp_avg:int4": "f32, bf16, fp16 and 8bit", "auto:sooner=1": "its options are",
	} {
		if _, err := ParsePolicy(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
