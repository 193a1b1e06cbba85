package main

import (
	"strings"
	"testing"
)

// Asked for qlora within a limit, the planner lets the base stay or streams it, packed, by
// itself, and the plan says which and what it saves.
func TestPlanExplainsTheBase(t *testing.T) {
	for limit, want := range map[string]string{
		"gpu=8GiB":    "nf4 weights stay on the device: 3.11 GiB instead of 12.1 GiB in bf16",
		"gpu=1900MiB": "come to the device when they are needed, packed: ",
	} {
		r := command(t, "plan", "llama-2-7b", "--task", "qlora", "--seq-len", "512", "--machine", "gpu:24GiB@25GB/s,host:64GiB", "--max-memory", limit)
		text := strings.Join(strings.Fields(r.out), " ")
		if !strings.Contains(text, "base "+want) && !(strings.Contains(text, "base nf4 weights of") && strings.Contains(text, want)) {
			t.Errorf("%s: want %q in\n%s", limit, want, r.out)
		}
	}
	if r := command(t, "plan", "llama-2-7b", "--task", "lora", "--seq-len", "512", "--machine", "gpu:24GiB,host:64GiB"); strings.Contains(r.out, "\nbase ") {
		t.Errorf("of weights in bf16 it says\n%s", r.out)
	}
}
