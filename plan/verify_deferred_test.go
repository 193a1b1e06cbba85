package plan

import (
	"slices"
	"strings"
	"testing"
)

// Each mistake about deferred updates is found.
func TestVerifyDeferred(t *testing.T) {
	const weight, gradient, copied, fresh = 0, 1, 2, 3 // buffers: the homes, and two on the device
	fetch := Instruction{Verb: Move, Deferred: true, Src: gradient, Dst: copied}
	update := Instruction{Verb: Update, Deferred: true, Bindings: []Binding{{Region: InWeight, Buffer: weight}, {Region: InGrad, Buffer: copied}}}
	run := Instruction{Verb: Run, Bindings: []Binding{{Region: InWeight, Buffer: weight}}}
	clip := Instruction{Verb: Reduce, Bindings: []Binding{{Region: OutPartial}, {Region: InClip}}}
	home := Instruction{Verb: Move, Src: fresh, Dst: gradient}
	for _, c := range []struct {
		name, want   string
		clips        bool
		instructions []Instruction
	}{
		{"sound", "", true, []Instruction{fetch, update, run, home, clip}},
		{"another gradient", "was not stored at home", true, []Instruction{update, run, home, clip}},
		{"weights that were read", "has read its weights", true, []Instruction{fetch, run, update, home, clip}},
		{"weights whose copy was read", "has read its weights", true, []Instruction{
			{Verb: Move, Src: weight, Dst: fresh}, {Verb: Run, Bindings: []Binding{{Region: InWeight, Buffer: fresh}}}, fetch, update, home, clip}},
		{"weights of before", "from before its deferred update", true, []Instruction{fetch,
			{Verb: Update, Deferred: true, Bindings: []Binding{{Region: InWeight, Buffer: fresh}, {Region: InGrad, Buffer: copied}}}, run, home, clip}},
		{"a new norm", "has not the norm", true, []Instruction{clip, fetch, update, run, home}},
		{"no norm", "has not the norm", false, []Instruction{fetch, update, run, home}},
		{"no gradient for the next", "no gradient goes home", true, []Instruction{fetch, update, run, clip}},
		{"a deferred run", "neither a move nor an update", true, []Instruction{{Verb: Run, Deferred: true}}},
	} {
		p := &Plan{Optimizer: &Optimizer{Clip: c.clips}, Slabs: []Slab{{Name: "layer", Weight: weight, Gradient: gradient}},
			Buffers: []Buffer{{Home: true}, {Home: true}, {}, {}}, Instructions: slices.Clone(c.instructions)}
		err := verifyDeferred(p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
