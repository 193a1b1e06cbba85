package run_test

import (
	"strings"
	"testing"

	"spillway"
	"spillway/arch"
	"spillway/dtype"
	"spillway/lora"
	"spillway/nn"
	"spillway/plan"
	"spillway/quant"
)

// The task qlora is planned for every preset, and what it takes is exact: the
// weights of the plan are, to the byte, what the formulas of the formats say of the
// shapes.
func TestQLoRAIsPlannedForEveryShape(t *testing.T) {
	for _, name := range arch.Presets() {
		for _, base := range []dtype.Type{quant.NF4, quant.RowI8, quant.RowF8} {
			if base != quant.NF4 && !strings.HasSuffix(name, "7b") {
				continue
			}
			m := open(t, name)
			adapters := lora.Options{Targets: []string{lora.AllLinear}, Rank: 16, Alpha: 32, Base: base}
			job, err := m.Standard(spillway.Options{Task: spillway.QLoRA, MicroBatchSize: 1, Seq: 64, Precision: dtype.BF16, Adapters: adapters, Machine: parse(t, "gpu:4TiB,host:8TiB")})
			if err != nil {
				t.Errorf("%s next to %v: %v", name, base, err)
				continue
			}
			var got int64
			for _, s := range job.Plan.Slabs {
				for _, p := range s.Params {
					got += p.Type.Bytes()
				}
			}
			if want := qloraBytes(t, name, base); got != want {
				t.Errorf("%s next to %v: weights take %d bytes, want %d", name, base, got, want)
			}
			if homes := weightHomes(job.Plan); homes < got || homes > got+got/100+int64(len(job.Plan.Slabs))*4096 {
				t.Errorf("%s next to %v: weights are stored in %d bytes and have %d", name, base, homes, got)
			}
		}
	}
}

// weightHomes is the bytes of buffers that weights are stored in.
func weightHomes(p *plan.Plan) (n int64) {
	for _, b := range p.Buffers {
		if b.Home && b.Class == plan.Weight {
			n += b.Bytes
		}
	}
	return n
}

// qloraBytes counts by hand: quantized linear weights, adapters of rank 16 and all else in
// bf16.
func qloraBytes(t *testing.T, name string, base dtype.Type) (sum int64) {
	t.Helper()
	config, err := arch.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	net, _, err := arch.FromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	params, err := nn.Bind(net)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		n := p.Shape.Elements()
		product := len(p.Shape) == 2 && !strings.Contains(p.Name, "embed") && !strings.Contains(p.Name, "lm_head") && !strings.Contains(p.Name, "wte") && !strings.Contains(p.Name, "wpe")
		switch {
		case !product:
			sum += 2 * n
		case base == quant.NF4:
			blocks := (n + 63) / 64
			sum += (n+1)/2 + blocks + 4*((blocks+255)/256) + 4
		default:
			sum += n + 4*p.Shape[0]
		}
		if product {
			sum += 2 * 16 * (p.Shape[0] + p.Shape[1])
		}
	}
	return sum
}
