package cuda_test

import (
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/optim"
	"spillway/planner/strategy"
)

// trainedWith trains all of a small Llama with an optimizer for a few iterations.
func trainedWith(t *testing.T, on device.Device, optimizer string, updates strategy.Updater) []float64 {
	t.Helper()
	o := spillway.Options{Task: spillway.Train, Seq: 128, Precision: dtype.F32, Machine: smallMachine(t), On: []device.Device{on}, Constraints: strategy.Constraints{Updates: updates}}
	var err error
	if o.Optimizer, err = optim.Parse(optimizer); err != nil {
		t.Fatal(err)
	}
	return trainSmallest(t, opened(t, "small-llama", o), 6, nil).Losses
}

// Every optimizer learns on the GPU as on the CPU, which is held to PyTorch's
// numbers, also where the CPU updates what the GPU has the gradients of.
func TestOptimizersLearnAsOnTheCPU(t *testing.T) {
	gpu := lent(t)
	host := cpu.Open(cpu.Options{})
	t.Cleanup(func() { host.Close() })
	for _, optimizer := range []string{"adamw:lr=1e-3", "adamw_8bit:lr=1e-3", "adamw_bf16:lr=1e-3", "lion:lr=1e-4", "lion_8bit:lr=1e-4", "rmsprop:lr=1e-3", "adagrad_8bit:lr=1e-2", "sgd_8bit:lr=1e-2,momentum=0.9", "adafactor:lr=1e-2"} {
		want := trainedWith(t, host, optimizer, strategy.ByDevice)
		for _, updates := range []strategy.Updater{strategy.ByDevice, strategy.ByCPU} {
			if updates == strategy.ByCPU && strings.HasPrefix(optimizer, "adafactor") {
				continue // it updates whole params, the host does not
			}
			got := trainedWith(t, gpu, optimizer, updates)
			for i := range want {
				if off := math.Abs(got[i] - want[i]); !(off <= 1e-3*want[i]) {
					t.Errorf("%s updated by the %s: losses %v, on the CPU %v", optimizer, updates, got, want)
					break
				}
			}
		}
		if !(want[5] < want[0]) {
			t.Errorf("%s: losses %v do not fall", optimizer, want)
		}
	}
}
