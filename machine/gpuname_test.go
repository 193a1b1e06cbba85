package machine

import (
	"testing"

	"spillway/units"
)

// Names as drivers give them, with the memory they report.
func TestFindGPU(t *testing.T) {
	for driver, c := range map[string]struct {
		memory units.Bytes // MiB
		want   string
	}{
		"NVIDIA H200":                        {143771, "h200"},
		"NVIDIA H100 80GB HBM3":              {81559, "h100"},
		"NVIDIA H100 PCIe":                   {81559, "h100-pcie"},
		"NVIDIA A100-SXM4-80GB":              {81920, "a100-80"},
		"NVIDIA A100-PCIE-40GB":              {40960, "a100-pcie-40"},
		"NVIDIA A100 80GB PCIe":              {81920, "a100-pcie-80"},
		"NVIDIA GeForce RTX 4090":            {24564, "rtx4090"},
		"NVIDIA GeForce RTX 4060 Ti":         {16380, "rtx4060ti-16"},
		"NVIDIA GeForce RTX 3080":            {10240, "rtx3080-10"},
		"NVIDIA GeForce RTX 3080 Ti":         {12288, "rtx3080ti"},
		"NVIDIA GeForce RTX 4070 SUPER":      {12282, "rtx4070super"},
		"NVIDIA GeForce RTX 4070 Ti SUPER":   {16376, "rtx4070tisuper"},
		"NVIDIA GeForce RTX 4070 Ti":         {12282, "rtx4070ti"},
		"NVIDIA GeForce RTX 4070":            {12282, "rtx4070"},
		"NVIDIA GeForce RTX 5070 Ti":         {16303, "rtx5070ti"},
		"NVIDIA RTX A5000":                   {24564, "a5000"},
		"NVIDIA GeForce RTX 4090 Laptop GPU": {16376, ""},
		"NVIDIA RTX A6000":                   {49140, "a6000"},
		"NVIDIA RTX 6000 Ada Generation":     {49140, "rtx6000-ada"},
		"NVIDIA L4":                          {23034, "l4"},
		"NVIDIA L40":                         {46068, "l40"},
		"NVIDIA L40S":                        {46068, "l40s"},
		"NVIDIA A10":                         {23028, "a10"},
		"Tesla V100-SXM2-16GB":               {16384, ""},
		"Tesla T4":                           {15360, ""},
		"NVIDIA B200":                        {183359, "b200"},
		"":                                   {24564, ""},
	} {
		if got, ok := FindGPU(driver, c.memory*units.MiB); got != c.want || ok != (c.want != "") {
			t.Errorf("%s with %d MiB is %q, want %q", driver, c.memory, got, c.want)
		}
	}
}

// Devices with known figures keep them and their names, and are completed.
func TestCompleteKeepsWhatIsKnown(t *testing.T) {
	var m Machine
	for _, d := range []Device{
		{Name: "cuda:0", Kind: GPU, Model: "h200", Memory: 100 * units.GiB, Usable: 90 * units.GiB, Link: Link{Bidirectional: FullDuplex},
			Bandwidth: 7e12, Sources: Sources{"memory": Measured, "usable": Measured, "bandwidth": Measured}},
		{Name: "cuda:1", Kind: GPU, Model: "Unheard Of", Memory: 10 * units.GiB, Usable: 9 * units.GiB,
			Sources: Sources{"memory": Measured, "usable": Measured}},
		{Kind: CPU, Memory: units.GiB},
	} {
		m.Add(d)
	}
	m.Complete()
	if len(m.Devices) != 3 || m.Devices[1].Name != "cuda:1" || m.Devices[2].Name != "cpu0" {
		t.Fatalf("devices %+v", m.Devices)
	}
	listed, _ := findModel("h200")
	d := m.Devices[0]
	if d.Bandwidth != 7e12 || d.Compute != listed.device().Compute || d.Sources["bf16"] != Published || d.Sources["bandwidth"] != Measured {
		t.Errorf("%+v", d)
	}
	if d := m.Devices[1]; d.Compute.BF16 != gpuCompute || d.Sources["bf16"] != Assumed {
		t.Errorf("%+v", d)
	}
}
