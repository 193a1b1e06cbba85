package plan

import (
	"slices"
	"strings"
	"testing"
)

// Each way to get late updates wrong is found.
func TestVerifyLate(t *testing.T) {
	const weight, gradient, copied, fresh = 0, 1, 2, 3 // buffers: the homes, and two on the device
	fetch := Step{Verb: Move, Late: true, Src: gradient, Dst: copied}
	update := Step{Verb: UpdateRun, Late: true, Bind: []Bind{{Region: InWeight, Buffer: weight}, {Region: InGrad, Buffer: copied}}}
	run := Step{Verb: Run, Bind: []Bind{{Region: InWeight, Buffer: weight}}}
	clip := Step{Verb: Reduce, Bind: []Bind{{Region: OutPartial}, {Region: InClip}}}
	home := Step{Verb: Move, Src: fresh, Dst: gradient}
	for _, c := range []struct {
		name, want string
		clips      bool
		steps      []Step
	}{
		{"sound", "", true, []Step{fetch, update, run, home, clip}},
		{"another gradient", "did not rest at home", true, []Step{update, run, home, clip}},
		{"weights that were read", "has read its weights", true, []Step{fetch, run, update, home, clip}},
		{"weights whose copy was read", "has read its weights", true, []Step{
			{Verb: Move, Src: weight, Dst: fresh}, {Verb: Run, Bind: []Bind{{Region: InWeight, Buffer: fresh}}}, fetch, update, home, clip}},
		{"weights of before", "not brought there", true, []Step{fetch,
			{Verb: UpdateRun, Late: true, Bind: []Bind{{Region: InWeight, Buffer: fresh}, {Region: InGrad, Buffer: copied}}}, run, home, clip}},
		{"a new norm", "without the norm", true, []Step{clip, fetch, update, run, home}},
		{"no norm", "without the norm", false, []Step{fetch, update, run, home}},
		{"no gradient for the next", "no gradient goes home", true, []Step{fetch, update, run, clip}},
		{"a late run", "neither a move nor an update", true, []Step{{Verb: Run, Late: true}}},
	} {
		p := &Plan{Update: &Update{Clip: c.clips}, Slabs: []Slab{{Name: "layer", Weight: weight, Gradient: gradient}},
			Buffers: []Buffer{{Home: true}, {Home: true}, {}, {}}, Steps: slices.Clone(c.steps)}
		err := verifyLate(p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
