package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settingNames are what users call the settings in a state; others have the names they
// have there.
var settingNames = map[string]string{
	"optimizer.lr":            "the learning rate (--learning-rate)",
	"optimizer.weight_decay":  "weight decay (--weight-decay)",
	"optimizer.name":          "the optimizer (--optimizer)",
	"schedule.kind":           "the schedule (--lr-scheduler)",
	"schedule.total":          "the length of the schedule (it follows --max-steps or --epochs)",
	"schedule.warmup":         "the warm-up (--warmup-steps or --warmup-ratio)",
	"clip":                    "clipping (--max-grad-norm)",
	"seed":                    "the seed (--seed)",
	"sequences_per_iteration": "sequences per step (--batch-size)",
	"average":                 "the average of weights (--ema)",
	"freeze":                  "frozen params (--freeze)",
	"groups":                  "groups of params (--param-group)",
	"centralize":              "centralized gradients (--centralize-gradients)",
	"canonical_sums":          "canonical sums (--canonical-sums)",
	"micro_batch_size":        "the micro-batches of canonical sums (--micro-batch-size)",

	"adapter.r":                   "the rank of adapters (--lora-rank)",
	"adapter.lora_alpha":          "what adapters are scaled by (--lora-alpha)",
	"adapter.lora_dropout":        "the dropout of adapters (--lora-dropout)",
	"adapter.use_rslora":          "the scaling by the root of the rank (--use-rslora)",
	"adapter.use_dora":            "DoRA (--use-dora)",
	"adapter.bias":                "the biases that are trained (--lora-bias)",
	"adapter.target_modules":      "the layers that have adapters (--target-modules)",
	"adapter.exclude_modules":     "the layers without adapters (--exclude-modules)",
	"adapter.layers_to_transform": "the numbers of layers with adapters (--layers-to-transform)",
	"adapter.modules_to_save":     "modules trained in full (--modules-to-save)",
	"adapter." + quantization:     "the type of the frozen weights (--method, --quantization)",
}

// fixedSettings are those, or where they end in a dot groups of them, that what is saved
// depends on: a run cannot go on with others.
var fixedSettings = []string{"average", "freeze", "optimizer.name", "optimizer.storage", "optimizer.codecs", "optimizer.min_8bit_size", "optimizer.states_of", "policy.", "compression.", "loss_scale.",
	"adapter.r", "adapter.lora_alpha", "adapter.use_rslora", "adapter.use_dora", "adapter.bias", "adapter.lora_bias", "adapter.target_modules", "adapter.exclude_modules",
	"adapter.layers_to_transform", "adapter.layers_pattern", "adapter.modules_to_save", "adapter.rank_pattern.", "adapter.alpha_pattern."}

// allow refuses to go on with other settings than a run had, with a line for each, unless
// changes are allowed and what is saved does not depend on them; then the lines are notices.
func (t *Trainer) allow(was, now state) error {
	if !was.CanonicalSums || !now.CanonicalSums {
		was.MicroBatchSize = now.MicroBatchSize // the same batch in other micro-batches is the same run, but for the order of sums
	}
	then, err := settings(was)
	if err != nil {
		return err
	}
	current, err := settings(now)
	if err != nil {
		return err
	}
	all := maps.Clone(then)
	maps.Copy(all, current)
	var lines, fixed []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if then[name] == current[name] {
			continue
		}
		called, ok := settingNames[name]
		if !ok {
			called = name
		}
		lines = append(lines, fmt.Sprintf("%s: %s in that run, %s now", called, orNone(then[name]), orNone(current[name])))
		if slices.ContainsFunc(fixedSettings, func(c string) bool { return name == c || strings.HasSuffix(c, ".") && strings.HasPrefix(name, c) }) {
			fixed = append(fixed, called)
		}
	}
	text := strings.Join(lines, "\n  ")
	switch {
	case len(lines) == 0:
		return nil
	case len(fixed) > 0:
		return fmt.Errorf("the run had other settings:\n  %s\n%s cannot change within a run: use what it had, or save to another folder", text, strings.Join(fixed, " and "))
	case !t.c.AllowChanges:
		return fmt.Errorf("the run had other settings:\n  %s\nuse what it had, or allow changes (--allow-changes) to go on with those of now", text)
	}
	for _, line := range lines {
		t.c.Notice("going on with other settings: " + line)
	}
	return nil
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// settings lists those of a state by name, those of an object behind its own: "optimizer.lr".
func settings(s state) (map[string]string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	list := map[string]string{}
	var add func(prefix string, of map[string]any)
	add = func(prefix string, of map[string]any) {
		for name, v := range of {
			if inner, ok := v.(map[string]any); ok {
				add(prefix+name+".", inner)
			} else {
				list[prefix+name] = fmt.Sprint(v)
			}
		}
	}
	add("", object)
	return list, nil
}
