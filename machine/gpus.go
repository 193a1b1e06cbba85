package machine

import (
	"regexp"
	"slices"
	"strings"

	"spillway/units"
)

// Shares of the published peaks that large work reaches. An H200 multiplies bf16
// matrices of 8192 at 790 of its 989 TFLOP/s, and copies at 4.3 of its 4.8 TB/s;
// 75 to 83% of the arithmetic is reported for other GPUs.
const (
	computeShare   = 0.8
	bandwidthShare = 0.9
)

// What large copies from pinned memory reach over 16 lanes in one direction. PCIe 5 is
// measured (of 63 GB/s on paper); the others are assumed to reach 82% of their peak.
const (
	pcie3 units.Rate = 13e9
	pcie4 units.Rate = 26e9
	pcie5 units.Rate = 55e9
)

// What large copies between two GPUs of one board reach over NVLink in each direction: 80% of the peak, the share that
// all-reduces of large tensors are reported to reach. The peaks of NVLink 3, 4 and 5 are 300, 450 and 900 GB/s each way,
// half of the figure on the box.
const (
	nvlink3 units.Rate = 240e9
	nvlink4 units.Rate = 360e9
	nvlink5 units.Rate = 720e9
)

// BoardGPUs is how many GPUs a board with NVLink switches between all of them has at most.
const BoardGPUs = 8

// gpuModel is a GPU that a description can name, with its maker's figures. Memory is what
// the driver reports, which is less than the box says where error correction takes a part.
// Arithmetic is dense (no sparsity) on tensor cores with fp32 accumulation, in
// TFLOP/s; f32 is on the ordinary cores. Bandwidth is the memory's, in GB/s. Capability is
// CUDA's version of its instructions, without the point. Peer is the direct link between
// two of them in the form that they are usually sold in, 0 for none.
type gpuModel struct {
	name                     string
	memory                   units.Bytes
	bandwidth                float64
	f32, tf32, bf16, f16, f8 float64
	link                     units.Rate
	capability               int
	peer                     units.Rate
}

// The figures are those of NVIDIA's data sheets and white papers, some by way of
// public tables of them; only the H200's were compared with a measurement.
// For GPUs sold in two forms, the plain name is the SXM module, which is on a board with NVLink; those for PCIe have
// none unless bridges are bought for pairs of them. GeForce GPUs
// halve their tensor rate when they accumulate in fp32: the halved rate is listed.
var gpuModels = []gpuModel{
	{"a10", 23028 * units.MiB, 600, 31.2, 62.5, 125, 125, 0, pcie4, 86, 0},
	{"a100-40", 40960 * units.MiB, 1555, 19.5, 156, 312, 312, 0, pcie4, 80, nvlink3},
	{"a100-80", 81920 * units.MiB, 2039, 19.5, 156, 312, 312, 0, pcie4, 80, nvlink3},
	{"a100-pcie-40", 40960 * units.MiB, 1555, 19.5, 156, 312, 312, 0, pcie4, 80, 0},
	{"a100-pcie-80", 81920 * units.MiB, 1935, 19.5, 156, 312, 312, 0, pcie4, 80, 0},
	{"a30", 24576 * units.MiB, 933, 10.3, 82, 165, 165, 0, pcie4, 80, 0},
	{"a40", 46068 * units.MiB, 696, 37.4, 74.8, 149.7, 149.7, 0, pcie4, 86, 0},
	{"a4000", 16376 * units.MiB, 448, 19.2, 38.3, 76.7, 76.7, 0, pcie4, 86, 0},
	{"a5000", 24564 * units.MiB, 768, 27.8, 55.6, 111.1, 111.1, 0, pcie4, 86, 0},
	{"a6000", 49140 * units.MiB, 768, 38.7, 77.4, 154.8, 154.8, 0, pcie4, 86, 0},
	{"b200", 183359 * units.MiB, 7700, 75, 1125, 2250, 2250, 4500, pcie5, 100, nvlink5},
	{"h100", 81559 * units.MiB, 3350, 67, 494.7, 989.4, 989.4, 1978.9, pcie5, 90, nvlink4},
	{"h100-pcie", 81559 * units.MiB, 2039, 51.2, 378, 756, 756, 1513, pcie5, 90, 0},
	{"h200", 143771 * units.MiB, 4800, 67, 494.7, 989.4, 989.4, 1978.9, pcie5, 90, nvlink4},
	{"l4", 23034 * units.MiB, 300, 30.3, 60, 121, 121, 242, pcie4, 89, 0},
	{"l40", 46068 * units.MiB, 864, 90.5, 90.5, 181, 181, 362, pcie4, 89, 0},
	{"l40s", 46068 * units.MiB, 864, 91.6, 183, 362, 362, 733, pcie4, 89, 0},
	{"rtx3060-12", 12288 * units.MiB, 360, 12.7, 12.7, 25.5, 25.5, 0, pcie4, 86, 0},
	{"rtx3060ti", 8192 * units.MiB, 448, 16.2, 16.2, 32.4, 32.4, 0, pcie4, 86, 0},
	{"rtx3070", 8192 * units.MiB, 448, 20.3, 20.3, 40.6, 40.6, 0, pcie4, 86, 0},
	{"rtx3070ti", 8192 * units.MiB, 608, 21.7, 21.7, 43.5, 43.5, 0, pcie4, 86, 0},
	{"rtx3080-10", 10240 * units.MiB, 760, 29.8, 29.8, 59.5, 59.5, 0, pcie4, 86, 0},
	{"rtx3080ti", 12288 * units.MiB, 912, 34.1, 34.1, 68.2, 68.2, 0, pcie4, 86, 0},
	{"rtx3090", 24576 * units.MiB, 936, 35.6, 35.6, 71, 71, 0, pcie4, 86, 0},
	{"rtx3090ti", 24564 * units.MiB, 1008, 40, 40, 80, 80, 0, pcie4, 86, 0},
	{"rtx4060", 8188 * units.MiB, 272, 15.1, 15.1, 30.2, 30.2, 60.5, pcie4 / 2, 89, 0},
	{"rtx4060ti-16", 16380 * units.MiB, 288, 22.1, 22.1, 44.1, 44.1, 88.2, pcie4 / 2, 89, 0},
	{"rtx4060ti-8", 8188 * units.MiB, 288, 22.1, 22.1, 44.1, 44.1, 88.2, pcie4 / 2, 89, 0},
	{"rtx4070", 12282 * units.MiB, 504, 29.1, 29.1, 58.3, 58.3, 116.6, pcie4, 89, 0},
	{"rtx4070super", 12282 * units.MiB, 504, 35.5, 35.5, 71, 71, 141.9, pcie4, 89, 0},
	{"rtx4070ti", 12282 * units.MiB, 504, 40.1, 40.1, 80.2, 80.2, 160.4, pcie4, 89, 0},
	{"rtx4070tisuper", 16376 * units.MiB, 672, 44.1, 44.1, 88.2, 88.2, 176.4, pcie4, 89, 0},
	{"rtx4080", 16376 * units.MiB, 717, 48.7, 48.7, 97.5, 97.5, 194.9, pcie4, 89, 0},
	{"rtx4080super", 16376 * units.MiB, 736, 52.2, 52.2, 104.4, 104.4, 208.9, pcie4, 89, 0},
	{"rtx4090", 24564 * units.MiB, 1008, 82.6, 82.6, 165.2, 165.2, 330.3, pcie4, 89, 0},
	{"rtx5060ti-16", 16311 * units.MiB, 448, 23.7, 23.7, 47.4, 47.4, 94.9, pcie5 / 2, 120, 0},
	{"rtx5070", 12227 * units.MiB, 672, 30.9, 30.9, 61.7, 61.7, 123.5, pcie5, 120, 0},
	{"rtx5070ti", 16303 * units.MiB, 896, 43.9, 43.9, 87.9, 87.9, 175.8, pcie5, 120, 0},
	{"rtx5080", 16303 * units.MiB, 960, 56.3, 56.3, 112.6, 112.6, 225.1, pcie5, 120, 0},
	{"rtx5090", 32607 * units.MiB, 1792, 104.8, 104.8, 209.5, 209.5, 419, pcie5, 120, 0},
	{"rtx6000-ada", 49140 * units.MiB, 960, 91.1, 182.1, 364.2, 364.2, 728.5, pcie4, 89, 0},
}

// GPUNames lists the GPUs that a description may name, sorted.
func GPUNames() []string {
	names := make([]string, len(gpuModels))
	for i, c := range gpuModels {
		names[i] = c.name
	}
	return names
}

// findModel finds a GPU by its name, with or without its maker, hyphens and the "GB" of its size. A name without a
// size, such as a100, is the smallest that is sold.
func findModel(name string) (gpuModel, bool) {
	wanted, pcie := plainName(name)
	found := gpuModel{}
	for _, c := range gpuModels {
		size := c.name[strings.LastIndexByte(c.name, '-')+1:]
		known, isPCIe := plainName(c.name)
		switch {
		case pcie != isPCIe:
		case known == wanted:
			return c, true
		case strings.Trim(size, "0123456789") == "" && strings.TrimSuffix(known, size) == wanted && (found.name == "" || c.memory < found.memory):
			found = c
		}
	}
	return found, found.name != ""
}

// plainName is a name without what does not tell GPUs apart, and whether it is for PCIe.
func plainName(name string) (plain string, pcie bool) {
	plain = strings.NewReplacer("-", "", "_", "", " ", "", "nvidia", "", "geforce", "", "pcie", "", "sxm5", "", "sxm4", "", "sxm", "").Replace(name)
	return strings.TrimSuffix(strings.TrimPrefix(plain, "rtx"), "gb"), strings.Contains(name, "pcie")
}

// LeastCapability is the compute capability that GPUs need, without the point: kernels use bf16 and instructions of the Ampere
// generation.
const LeastCapability = 80

// olderGPUs are how the names of GPUs of NVIDIA begin that have less, by generation and its highest capability.
var olderGPUs = []struct {
	generation string
	capability string
	begins     *regexp.Regexp
}{
	{"Turing", "7.5", regexp.MustCompile(`^(t4|t400|t600|t1000|titanrtx|(rtx)?20[678]0|(gtx)?16[356]0|(quadro)?rtx[34568]000$)`)},
	{"Volta", "7.0", regexp.MustCompile(`^(v100|titanv)`)},
	{"Pascal", "6.1", regexp.MustCompile(`^(p4$|p40|p100|(gtx)?10[12345678]0|titanx|titanxp|(quadro)?p[1-6]000)`)},
	{"Maxwell or Kepler", "5.2", regexp.MustCompile(`^(k[1248]0|m[46]0|gtx[789]\d0)`)},
}

// older says of what generation a GPU is that is too old to be used, and what its capability is at most; "" of others.
func older(name string) (generation, capability string) {
	name = strings.NewReplacer("-", "", "_", "", " ", "", "nvidia", "", "geforce", "", "tesla", "").Replace(name)
	for _, o := range olderGPUs {
		if o.begins.MatchString(name) {
			return o.generation, o.capability
		}
	}
	return "", ""
}

// server says whether servers have the GPU, whose hosts have more channels to memory than those of desktops.
func (c gpuModel) server() bool {
	return !strings.HasPrefix(c.name, "rtx") && !slices.Contains([]string{"a4000", "a5000", "a6000"}, c.name)
}

// device is the model as a Device, at the rates that large work reaches on it.
func (c gpuModel) device() Device {
	tera := func(v float64) units.Flops { return units.Flops(v * 1e12 * computeShare) }
	return Device{
		Kind: GPU, Model: c.name, Memory: c.memory, Capability: c.capability,
		Compute:   Compute{F32: tera(c.f32), TF32: tera(c.tf32), BF16: tera(c.bf16), F16: tera(c.f16), F8: tera(c.f8)},
		Bandwidth: units.Rate(c.bandwidth * 1e9 * bandwidthShare),
		Link:      Link{In: c.link, Out: c.link},
	}
}
