package main

import (
	"strings"
	"testing"
)

// Within a memory limit the planner keeps the quantized weights of qlora on the device or
// streams them packed, and the plan says which and what it saves.
func TestPlanExplainsQuantizedWeights(t *testing.T) {
	for limit, want := range map[string]string{
		"gpu=8GiB":    "nf4 weights stay on the device: 3.11 GiB instead of 12.1 GiB in bf16",
		"gpu=1900MiB": "stream to the device packed: ",
	} {
		r := command(t, "plan", "llama-2-7b", "--task", "qlora", "--seq-len", "512", "--machine", "gpu:24GiB@25GB/s,host:64GiB", "--max-memory", limit)
		text := strings.Join(strings.Fields(r.out), " ")
		if !strings.Contains(text, "quantized "+want) && !(strings.Contains(text, "quantized nf4 weights of") && strings.Contains(text, want)) {
			t.Errorf("%s: want %q in\n%s", limit, want, r.out)
		}
	}
	if r := command(t, "plan", "llama-2-7b", "--task", "lora", "--seq-len", "512", "--machine", "gpu:24GiB,host:64GiB"); strings.Contains(r.out, "\nquantized ") {
		t.Errorf("of weights in bf16 it says\n%s", r.out)
	}
}
