package deepspeed_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"spillway/deepspeed"
	"spillway/dtype"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
)

func parseFile(t *testing.T, name string, devices int) (deepspeed.Config, map[string]deepspeed.Kind) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	c, notices, err := deepspeed.Parse(text, devices)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]deepspeed.Kind{}
	for _, n := range notices {
		if kinds[n.Path] = n.Kind; n.Why == "" {
			t.Errorf("%s: no reason", n.Path)
		}
	}
	return c, kinds
}

// The configuration that guides show: ZeRO-2, optimizer on the CPU, fp16.
func TestZero2WithOffload(t *testing.T) {
	c, kinds := parseFile(t, "zero2-offload.json", 1)
	if c.MicroBatchSize != 8 || c.MicroBatches != 4 || c.Precision != dtype.F16 || c.LossScale.Scale != 65536 || c.Stage != 2 || c.State != plan.OnHost || c.Weights != "" || c.Clip != 0 {
		t.Errorf("%+v", c)
	}
	if i := c.Constraints(); i.Parallelism != "" || i.State != plan.OnHost {
		t.Errorf("on one device: %+v", i)
	}
	want := map[string]deepspeed.Kind{"gradient_clipping": deepspeed.Open, "zero_optimization.stage": deepspeed.Unused}
	if len(kinds) != len(want) {
		t.Errorf("notices %v, want %v", kinds, want)
	}
	for path, kind := range want {
		if kinds[path] != kind {
			t.Errorf("%s: %q, want %q", path, kinds[path], kind)
		}
	}
	c, _ = parseFile(t, "zero2-offload.json", 4)
	if c.MicroBatchSize != 2 || c.MicroBatches != 16 || c.Constraints().Parallelism != strategy.ZeRO2 {
		t.Errorf("on four devices: %+v", c)
	}
}

// ZeRO-Infinity with everything on disk, and keys of all kinds.
func TestZero3OnDisk(t *testing.T) {
	c, kinds := parseFile(t, "zero3-infinity.json", 2)
	text, err := os.ReadFile("testdata/zero3-infinity.json")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := deepspeed.DiskPath(text); err != nil || path != c.DiskPath {
		t.Errorf("the folder on disk is %q (%v)", path, err)
	}
	if c.MicroBatchSize != 2 || c.MicroBatches != 16 || c.Clip != 1 || c.LearningRate != 3e-4 || c.DiskPath != "/scratch" {
		t.Errorf("%+v", c)
	}
	if got := c.Optimizer.String(); got != "adamw:lr=0.0003,beta2=0.95,weight_decay=0.1" {
		t.Errorf("optimizer %s", got)
	}
	if got := c.Schedule.String(); got != "cosine:warmup=100,total=1000,log=true,floor=0.1" {
		t.Errorf("schedule %s", got)
	}
	if i := c.Constraints(); i.Parallelism != strategy.ZeRO3 || i.Weights != plan.OnDisk || i.State != plan.OnDisk {
		t.Errorf("%+v", i)
	}
	for path, kind := range map[string]deepspeed.Kind{
		"zero_optimization.overlap_com":                  deepspeed.Unknown,
		"zero_optimization.overlap_comm":                 deepspeed.Unused,
		"zero_optimization.reduce_bucket_size":           deepspeed.Unused,
		"zero_optimization.offload_param.buffer_count":   deepspeed.Unused,
		"zero_optimization.offload_optimizer.pin_memory": deepspeed.Unused,
		"bf16.check_grad_overflow":                       deepspeed.Unused,
		"curriculum_learning":                            deepspeed.Missing,
	} {
		if kinds[path] != kind {
			t.Errorf("%s: %q, want %q", path, kinds[path], kind)
		}
	}
}

// Two of the three sizes give the third.
func TestBatchArithmetic(t *testing.T) {
	for _, c := range []struct {
		text    string
		devices int
		rows    int64
		micros  int
	}{
		{`"train_batch_size": 32, "gradient_accumulation_steps": 4`, 1, 8, 4},
		{`"train_batch_size": 32, "gradient_accumulation_steps": 4`, 2, 4, 8},
		{`"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4`, 4, 4, 8},
		{`"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2`, 4, 4, 8},
		{`"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2`, 4, 4, 8},
		{`"train_batch_size": 32`, 4, 8, 4},
		{`"train_micro_batch_size_per_gpu": 4`, 3, 4, 3},
		{`"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"`, 3, 4, 0},
		{`"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2`, 3, 0, 6},
		{`"steps_per_print": 1`, 3, 0, 0},
	} {
		got, _, err := deepspeed.Parse([]byte("{"+c.text+"}"), c.devices)
		if err != nil || got.MicroBatchSize != c.rows || got.MicroBatches != c.micros {
			t.Errorf("%s on %d: %d × %d, want %d × %d (%v)", c.text, c.devices, got.MicroBatchSize, got.MicroBatches, c.rows, c.micros, err)
		}
	}
}

// Errors have the numbers, and all of them at once.
func TestErrors(t *testing.T) {
	for text, wants := range map[string][]string{
		`{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}`: {"32", "4", "2", "16", "2 devices"},
		`{"train_batch_size": 33, "gradient_accumulation_steps": 4}`:                                      {"33", "4", "= 8"},
		`{"train_batch_size": 0}`:             {"from 1"},
		`{"train_batch_size": 1.5}`:           {"integer"},
		`{"train_batch_size": "many"}`:        {`"many"`, "number"},
		`{"zero_optimization": {"stage": 4}}`: {"4", "0, 1, 2 or 3"},
		`{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}}`:                  {"gpu", "none, cpu or nvme"},
		`{"zero_optimization": true, "fp16": {"enabled": 1}}`:                                          {"an object", "true or false"},
		`{"fp16": {"enabled": true}, "bf16": {"enabled": true}}`:                                       {"both"},
		`{"optimizer": {"type": "Lamb"}}`:                                                              {"Lamb", "adamw"},
		`{"optimizer": {"type": "Muon"}}`:                                                              {"Muon", "adamw"},
		`{"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}`:                                  {"two numbers"},
		`{"optimizer": {"type": "Adam", "params": {"lr": -1}}}`:                                        {"lr is -1"},
		`{"optimizer": {"type": "Adam", "params": {"amsgrad": true}}}`:                                 {"amsgrad"},
		`{"scheduler": {"type": "OneCycle"}}`:                                                          {"OneCycle", "WarmupLR"},
		`{"scheduler": {"type": "WarmupDecayLR", "params": {}}}`:                                       {"total_num_steps is missing"},
		`{"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 10}}}`:                 {"10", "1000"},
		`{"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.01}}}`: {"0.1", "0.01"},
		`{"gradient_clipping": -1}`:                                                                    {"-1"},
		`{"fp16": {}, "fp16": {}}`:                                                                     {"fp16 is there twice"},
		`{"a": {"b": 1, "b": 2}}`:                                                                      {"a.b is there twice"},
		`[]`:                                                                                           {"not a JSON object"},
		`{} {}`:                                                                                        {"follows"},
		`{`:                                                                                            {"EOF"},
		strings.Repeat(`{"a":`, 100) + "1":                                                             {"nested"},
	} {
		_, _, err := deepspeed.Parse([]byte(text), 2)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.60s: %v, want %q", text, err, want)
			}
		}
	}
}

func TestOffloadFollowsTheStage(t *testing.T) {
	for _, c := range []struct {
		text           string
		weights, state plan.Tier
	}{
		{`{"stage": 3, "offload_param": {"device": "cpu"}}`, plan.OnHost, ""},
		{`{"stage": 2, "offload_param": {"device": "cpu"}}`, "", ""},
		{`{"stage": 0, "offload_optimizer": {"device": "cpu"}}`, "", ""},
		{`{"stage": 1, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}`, "", plan.OnHost},
		{`{"stage": 2, "cpu_offload": true}`, "", plan.OnHost},
		{`{"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme"}}`, plan.OnDisk, plan.OnDisk},
	} {
		got, _, err := deepspeed.Parse([]byte(`{"zero_optimization": `+c.text+`}`), 1)
		if err != nil || got.Weights != c.weights || got.State != c.state {
			t.Errorf("%s: weights %q, state %q (%v)", c.text, got.Weights, got.State, err)
		}
	}
}

func TestStagesAreWaysToShare(t *testing.T) {
	for stage, want := range []strategy.Parallelism{strategy.ZeRO2, strategy.ZeRO1, strategy.ZeRO2, strategy.ZeRO3} {
		got, _, err := deepspeed.Parse(fmt.Appendf(nil, `{"zero_optimization": {"stage": %d}}`, stage), 2)
		if err != nil || got.Constraints().Parallelism != want {
			t.Errorf("stage %d: %q, want %q (%v)", stage, got.Constraints().Parallelism, want, err)
		}
	}
}

func TestPrecision(t *testing.T) {
	for text, want := range map[string]dtype.Type{
		`{}`: dtype.F32, `{"bf16": {"enabled": true}}`: dtype.BF16, `{"bfloat16": {"enabled": true}}`: dtype.BF16,
		`{"fp16": {"enabled": false}}`: dtype.F32, `{"fp16": {"enabled": "auto"}}`: dtype.Invalid,
	} {
		if got, _, err := deepspeed.Parse([]byte(text), 1); err != nil || got.Precision != want {
			t.Errorf("%s: %v, want %v (%v)", text, got.Precision, want, err)
		}
	}
}

func TestLossScale(t *testing.T) {
	usual := optim.LossScale{Scale: 65536, Growth: 2, Backoff: 0.5, Interval: 1000}
	early, fixed := usual, usual
	early.Scale, early.Interval = 256, 50
	fixed.Scale, fixed.Growth, fixed.Backoff = 128, 1, 1
	for text, want := range map[string]optim.LossScale{
		`"loss_scale": 0`: usual,
		`"initial_scale_power": 8, "loss_scale_window": 50`: early,
		`"loss_scale": 128, "hysteresis": 2`:                fixed,
		`"initial_scale_power": 16, "min_loss_scale": 1`:    usual,
	} {
		if got, _, err := deepspeed.Parse([]byte(`{"fp16": {"enabled": true, `+text+`}}`), 1); err != nil || got.LossScale != want {
			t.Errorf("%s: %+v, want %+v (%v)", text, got.LossScale, want, err)
		}
	}
	for _, text := range []string{`"loss_scale": -1`, `"initial_scale_power": 300`, `"loss_scale_window": 0`} {
		if _, _, err := deepspeed.Parse([]byte(`{"fp16": {"enabled": true, `+text+`}}`), 1); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

// Adam means AdamW without decay, unless the file says otherwise.
func TestOptimizers(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "Adam"}`: "adamw:weight_decay=0", `{"type": "FusedAdam"}`: "adamw:weight_decay=0", `{"type": "adamw_8bit"}`: "adamw_8bit:weight_decay=0", `{"type": "Lion"}`: "lion",
		`{"type": "Adam", "params": {"adam_w_mode": false, "lr": 0.01}}`:                    "adam:lr=0.01",
		`{"type": "AdamW", "params": {"torch_adam": true}}`:                                 "adamw",
		`{"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "weight_decay": 0.2}}`: "adamw:weight_decay=0.2",
		`{"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}`:         "sgd:lr=0.1,momentum=0.9,nesterov=true",
	} {
		got, _, err := deepspeed.Parse([]byte(`{"optimizer": `+text+`}`), 1)
		if err != nil || got.Optimizer.String() != want {
			t.Errorf("%s: %v, want %s (%v)", text, got.Optimizer, want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"zero2-offload.json", "zero3-infinity.json"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, devices int) {
		c, _, err := deepspeed.Parse(text, devices%64)
		if err == nil && (c.MicroBatchSize < 0 || c.MicroBatches < 0) {
			t.Errorf("%d × %d", c.MicroBatchSize, c.MicroBatches)
		}
	})
}

// States in the type of the weights are what they are here too.
func TestOptimizerStates(t *testing.T) {
	for text, want := range map[string]string{
		`{"gradient_clipping": 1, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": true, "bf16_optimizer_states": true}}`:               "adamw_bf16:weight_decay=0",
		`{"gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": false}}, "fp16": {"enabled": true}}`:  "adamw_fp16:weight_decay=0",
		`{"gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": false}}, "fp16": {"enabled": false}}`: "adamw:weight_decay=0",
	} {
		got, notices, err := deepspeed.Parse([]byte(text), 1)
		if err != nil || got.Optimizer.String() != want || len(notices) > 0 {
			t.Errorf("%s: %v, want %s (%v, %v)", text, got.Optimizer, want, notices, err)
		}
	}
}
