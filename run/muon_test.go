package run_test

import (
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/optim"
)

// Muon is planned for CPUs and refused on GPUs, also on described ones, with what to do instead; so is a policy
// that would compress nothing of it.
func TestMuonIsForCPUs(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(false, 0)))
	for described, want := range map[string]string{"cpu:1GiB,host:4GiB": "", "gpu:24GiB,host:64GiB": "--device cpu", "cpu:1GiB,host:4GiB@policy": "none that can be compressed"} {
		described, compressed := strings.CutSuffix(described, "@policy")
		o := spillway.Options{Task: spillway.Train, MicroBatchSize: 1, Seq: 16, Machine: parse(t, described)}
		if strings.HasPrefix(described, "cpu") {
			o.On = []device.Device{openDevice(t)}
		}
		var err error
		if o.Optimizer, err = optim.Parse("muon"); err != nil {
			t.Fatal(err)
		}
		if compressed {
			o.StatePolicy.Codecs = "exp_avg:8bit"
		}
		if _, err := m.Plan(o); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", described, err, want)
		}
	}
}
