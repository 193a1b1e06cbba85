package optim

import (
	"strings"
	"testing"
)

// The names that transformers' trainer has for optimizers mean what they mean there, where there is such an optimizer; the
// others are refused with what to take instead, or with a list.
func TestNamesOfTransformers(t *testing.T) {
	for name, want := range map[string]string{
		"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_apex_fused": "adamw", "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit", "paged_adamw_32bit": "adamw", "paged_adamw_8bit": "adamw_8bit",
		"lion_32bit": "lion", "lion_8bit": "lion_8bit", "paged_lion_8bit": "lion_8bit", "ademamix": "ademamix", "ademamix_8bit": "ademamix_8bit", "paged_ademamix_32bit": "ademamix", "paged_ademamix_8bit": "ademamix_8bit",
		"rmsprop": "rmsprop", "rmsprop_bnb": "rmsprop", "rmsprop_bnb_8bit": "rmsprop_8bit", "rmsprop_bnb_32bit": "rmsprop", "adagrad": "adagrad", "sgd": "sgd", "adafactor": "adafactor", "schedule_free_adamw": "schedule_free_adamw",
		"bitsandbytes.optim.LAMB8bit": "lamb_8bit", "torch.optim.Muon": "muon", "bitsandbytes.optim.LARS": "lars", "bitsandbytes.optim.PagedAdEMAMix8bit": "ademamix_8bit",
	} {
		if c, err := Parse(name); err != nil || c.String() != want {
			t.Errorf("%s is %s, want %s (%v)", name, c, want, err)
		}
	}
	for name, instead := range map[string]string{"galore_adamw": "adamw_8bit", "lomo": "sgd:momentum=0", "adalomo": "adafactor", "adamw_torch_4bit": "adamw_8bit", "grokadamw": "there are adamw"} {
		if c, err := Parse(name); err == nil || !strings.Contains(err.Error(), instead) {
			t.Errorf("%s is %s, error %v, want %q in it", name, c, err, instead)
		}
		if _, err := Parse(instead); err != nil && !strings.Contains(instead, " ") {
			t.Errorf("%s: %v", instead, err)
		}
	}
}

// A group cannot change how params are updated, only by which numbers: what it could not have is
// refused.
func TestGroupsHaveTheOptimizersUpdate(t *testing.T) {
	plain, err := Parse("adamw")
	if err != nil {
		t.Fatal(err)
	}
	bounded, err := Parse("adamw:max_unorm=0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of      Config
		options string
		fine    bool
	}{{plain, "beta2=0.95", true}, {plain, "max_unorm=0.1", false}, {plain, "skip_zeros=1", false}, {bounded, "max_unorm=0.2", true}, {bounded, "max_unorm=0", false}} {
		if _, err := (Group{Params: []string{"norms"}, Options: c.options}).Of(c.of); (err == nil) != c.fine {
			t.Errorf("%v with a group of %s: %v", c.of, c.options, err)
		}
	}
}

// Schedules of transformers are known by their names, or what to take instead.
func TestSchedulesOfTransformers(t *testing.T) {
	if s, err := ParseSchedule("constant_with_warmup:warmup=10"); err != nil || s.String() != "constant:warmup=10" {
		t.Errorf("constant_with_warmup is %v (%v)", s, err)
	}
	for name, instead := range otherSchedules {
		if _, err := ParseSchedule(name); err == nil || !strings.Contains(err.Error(), "take "+instead) {
			t.Errorf("%s: %v, want %q in it", name, err, instead)
		}
	}
}
