package planner

import (
	"fmt"
	"testing"
	"time"

	"spillway/arch"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/spec"
	"spillway/units"
)

func TestScratch(t *testing.T) {
	for _, name := range []string{"llama-3-8b", "llama-3-405b"} {
		cfg := []byte(map[string]string{"llama-3-8b": `{"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"rms_norm_eps":1e-5,"rope_theta":500000.0}`,
			"llama-3-405b": `{"model_type":"llama","vocab_size":128256,"hidden_size":16384,"num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,"intermediate_size":53248,"rms_norm_eps":1e-5,"rope_theta":500000.0}`}[name])
		mod, _, err := arch.FromConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m, err := spec.Trace(name, "llama", mod, graph.Config{Rows: 1, Seq: 4096, DType: dtype.BF16, Task: graph.Train})
		if err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		r := sim.Rates{Matrix: 165e12, Vector: 80e12, Memory: 1e12, In: 25e9, Out: 25e9, Launch: 4 * time.Microsecond, Latency: 10 * time.Microsecond}
		site := Site{Device: "gpu0", Budget: 23 << 30, HostBudget: 8000 << 30, Alignment: 256, Rates: r, Kernels: sim.NewVirtual("gpu0", 0, 256, r), HostPinned: true}
		if name != "llama-3-8b" {
			site.Budget = 160 << 30
		}
		p, err := Make(m, Goal{Micros: 8, Master: true, Optimizer: &Optimizer{Rule: op.Adam, Attr: op.Attr{Decoupled: true}, Moments: []string{"exp_avg", "exp_avg_sq"}, Clip: true}}, site)
		fmt.Println("plan", time.Since(t0), err)
		if err != nil {
			continue
		}
		fmt.Println(p.Strategy, "|", p.Reason, len(p.Steps), len(p.Buffers))
		fmt.Printf("%+v\n", *p.Forecast)
		for tier, b := range p.Peak() {
			fmt.Println(tier, units.Bytes(b))
		}
	}
}
