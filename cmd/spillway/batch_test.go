package main

import (
	"strings"
	"testing"
)

// --batch-size is the sequences of an optimizer step: the planner cuts it into micro-batches and
// has all devices work without being asked, as fast as with the division given by hand.
func TestBatchIsDivided(t *testing.T) {
	args := []string{"plan", "gpt2", "--task", "train", "--seq-len", "256", "--machine", "4xgpu:24GiB", "--json"}
	v := command(t, append(args, "--batch-size", "64")...).object(t)
	if at(t, v, "goal.batch_size") != 64.0 || len(at(t, v, "devices").([]any)) != 4 {
		t.Errorf("goal %v on %v", v["goal"], v["devices"])
	}
	if order := at(t, v, "sum_order").(string); !strings.Contains(order, "4 devices") {
		t.Errorf("sums: %s", order)
	}
	given := command(t, append(args, "--micro-batch-size", "16", "--gradient-accumulation-steps", "1")...).object(t)
	if at(t, given, "goal.batch_size") != 64.0 || at(t, given, "goal.micro_batches") != 4.0 {
		t.Errorf("16 sequences on each of 4 devices are %v", given["goal"])
	}
	if found, hand := at(t, v, "forecast.step_seconds").(float64), at(t, given, "forecast.step_seconds").(float64); found > 1.001*hand {
		t.Errorf("%v s as planned, %v s as divided by hand", found, hand)
	}
	alone := command(t, append(args, "--micro-batch-size", "2")...).object(t)
	if at(t, alone, "goal.batch_size") != 8.0 {
		t.Errorf("a micro-batch of 2 for each of 4 devices is %v", alone["goal"])
	}
}

// A batch that does not fit at once is cut.
func TestLargeBatchesAreCut(t *testing.T) {
	for _, task := range []string{"train", "infer"} {
		v := command(t, "plan", "small-llama", "--task", task, "--precision", "fp32", "--batch-size", "64", "--machine", "cpu:128MiB,host:8GiB", "--json").object(t)
		if at(t, v, "fits") != true || at(t, v, "goal.batch_size") != 64.0 || at(t, v, "goal.micro_batches").(float64) < 2 {
			t.Errorf("%s: fits %v, goal %v", task, v["fits"], v["goal"])
		}
	}
}

// Sizes that contradict each other are refused with all of them.
func TestBatchSizesThatContradict(t *testing.T) {
	for text, flags := range map[string]string{
		"4 micro-batches (2 accumulated on each of 2 devices) of 4 sequences are 16, not a batch of 8": "--batch-size 8 --micro-batch-size 4 --gradient-accumulation-steps 2",
		"a batch of 6 sequences cannot be cut into 4 micro-batches":                                    "--batch-size 6 --gradient-accumulation-steps 2",
		"a batch of 6 sequences cannot be cut into micro-batches of 4":                                 "--batch-size 6 --micro-batch-size 4",
		"at least 1":                "--micro-batch-size 0",
		"at most 16384 are planned": "--gradient-accumulation-steps 1000000",
	} {
		r := command(t, append([]string{"plan", "tiny-llama", "--machine", "2xgpu:1GiB"}, strings.Fields(flags)...)...)
		if r.code == exitOK || !strings.Contains(strings.Join(strings.Fields(r.out+r.err), " "), text) {
			t.Errorf("%s: exit code %d, %s%s", flags, r.code, r.out, r.err)
		}
	}
	if r := command(t, "plan", "gpt2", "--batch-size", "100000000", "--machine", "gpu:24GiB"); r.code != exitFailed { // soon, in little memory
		t.Errorf("a batch of 100 million: exit code %d", r.code)
	}
}
