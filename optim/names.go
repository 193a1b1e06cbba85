package optim

import (
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/internal/suggest"
)

// elsewhere are parts of names that other trainers know, and what to take here.
var elsewhere = []struct{ part, instead string }{
	{"adalomo", "weights are updated as soon as their gradient is complete with every optimizer; adafactor has states as small as AdaLOMO's"},
	{"lomo", "weights are updated as soon as their gradient is complete with every optimizer; sgd:momentum=0 takes LOMO's steps and has no states either"},
	{"galore", "states of projected gradients are not there; adamw_8bit takes a quarter of the memory, and states may be stored on the host or on disk"},
	{"4bit", "states have 8 bits at least: adamw_8bit"},
}

// findByName finds an optimizer by any of the names people know: "adamw_8bit",
// "paged_adamw_32bit", "adamw_torch_fused", "bitsandbytes.optim.PagedLion8bit".
//
// "paged" means that states may be stored on the host. Here they always may, wherever the
// plan puts them, so the word is accepted and changes nothing.
func findByName(text string) (*Rule, dtype.Type, error) {
	name := strings.ToLower(strings.TrimSpace(text))
	name = strings.ReplaceAll(name[strings.LastIndex(name, ".")+1:], "_", "")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "paged"), "fused")
	storage := dtype.Invalid
	for _, s := range storages() {
		if rest, ok := strings.CutSuffix(name, s.name); ok && rest != "" {
			name, storage = rest, s.t
			break
		}
	}
	if storage == dtype.F32 {
		storage = dtype.Invalid // which is the same, and the shorter
	}
	for _, maker := range []string{"fused", "apex", "torch", "bnb", "hf"} {
		name = strings.TrimSuffix(name, maker)
	}
	for known := range rules {
		if strings.ReplaceAll(known, "_", "") == name {
			name = known
			break
		}
	}
	r, err := find(name)
	for _, other := range elsewhere {
		if err != nil && strings.Contains(name, other.part) {
			return r, storage, fmt.Errorf("there is no optimizer %q: %s", strings.TrimSpace(text), other.instead)
		}
	}
	if err != nil {
		return r, storage, fmt.Errorf("there is no optimizer %q%s; there are %s, with %s for their states", strings.TrimSpace(text), suggest.Hint(name, Names()), strings.Join(Names(), ", "), StorageEndings())
	}
	return r, storage, nil
}
