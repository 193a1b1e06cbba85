package optim

import (
	"math"
	"strings"
	"testing"
)

func TestScheduleShapes(t *testing.T) {
	for text, want := range map[string]map[int]float64{
		"constant":                                       {0: 1, 5: 1, 1000000: 1},
		"constant:warmup=4":                              {0: 0, 1: 0.25, 3: 0.75, 4: 1, 99: 1},
		"linear:total=10":                                {0: 1, 5: 0.5, 10: 0, 11: 0, 100: 0},
		"linear:warmup=5,total=10,floor=0.2":             {0: 0, 4: 0.8, 5: 1, 10: 0.2, 12: 0.2},
		"cosine:warmup=2,total=10":                       {0: 0, 1: 0.5, 2: 1, 6: 0.5, 10: 0, 14: 0},
		"cosine:total=8,floor=0.1":                       {0: 1, 4: 0.55, 8: 0.1, 20: 0.1},
		"constant:warmup=6,start=0.25":                   {0: 0.25, 3: 0.625, 6: 1},
		"step:every=3,gamma=0.5":                         {0: 1, 2: 1, 3: 0.5, 6: 0.25, 8: 0.25},
		"step:every=3,gamma=0.5,warmup=2":                {0: 0, 1: 0.5, 2: 1, 4: 1, 5: 0.5},
		"linear:warmup=5,total=5":                        {4: 0.8, 5: 1, 6: 0},
		"cosine_with_restarts:total=8,num_cycles=2":      {0: 1, 2: 0.5, 4: 1, 6: 0.5, 8: 0, 20: 0},
		"polynomial:total=4,floor=0.2,power=2":           {0: 1, 2: 0.4, 4: 0.2, 9: 0.2},
		"inverse_sqrt:warmup=4":                          {2: 0.5, 4: 1, 16: 0.5},
		"warmup_stable_decay:total=10,num_decay_steps=4": {0: 1, 6: 1, 8: 0.5, 10: 0, 99: 0},
		"warmup_stable_decay:num_stable_steps=2,num_decay_steps=2,floor=0.5,decay_type=linear": {2: 1, 3: 0.75, 4: 0.5, 7: 0.5},
	} {
		s, err := ParseSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if got := s.Factor(i); math.Abs(got-w) > 1e-12 {
				t.Errorf("%s: iteration %d has factor %v, want %v", text, i, got, w)
			}
		}
		if again, err := ParseSchedule(s.String()); err != nil || again != s {
			t.Errorf("%q writes itself %q: %+v, %v", text, s, again, err)
		}
	}
}

func TestScheduleErrors(t *testing.T) {
	for text, says := range map[string]string{
		"linear": "set total", "cosine:warmup=10,total=5": "not less than the warm-up", "step": "above 0", "step:every=2,gamma=0": "above 0",
		"cosine:total=5,floor=2": "between 0 and 1", "constant:warmup=-1": "negative", "exponential": "there are constant", "reduce_lr_on_plateau": "follows the loss", "linear:gamma=0.5": "its options are", "constant:floor=0.1": "its options are",
		"cosine_with_min_lr": "min_lr_rate=0.1", "cosine:floor=0.1,min_lr=1e-6": "keep one", "cosine:num_cycles=0,total=5": "above 0", "warmup_stable_decay:total=9": "num_decay_steps=N",
		"warmup_stable_decay:total=9,num_decay_steps=10": "make one shorter", "warmup_stable_decay:total=9,num_decay_steps=1,decay_type=sqrt": "1-sqrt", "polynomial": "set total", "linear:totl=5": "its options are",
		"linear:total=many": "write it like",
	} {
		s, err := ParseSchedule(text)
		if err == nil {
			err = s.Check()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if (Schedule{Kind: "none"}).Check() == nil {
		t.Error("an unknown kind was accepted")
	}
}

func TestClip(t *testing.T) {
	norm := GlobalNorm(SumSquares([]float32{3, 0}), SumSquares([]float32{0, 4}))
	if norm != 5 {
		t.Errorf("the norm of 3 and 4 is %v", norm)
	}
	for _, c := range []struct {
		norm, limit float64
		want        float32
	}{{5, 1, float32(1 / 5.000001)}, {0.5, 1, 1}, {1, 1, float32(1 / 1.000001)}, {5, 0, 1}, {0, 1, 1}} {
		if got, err := Clip(c.norm, c.limit); err != nil || got != c.want {
			t.Errorf("Clip(%v, %v) = %v, %v; want %v", c.norm, c.limit, got, err, c.want)
		}
	}
	for _, bad := range [][2]float64{{math.NaN(), 1}, {math.Inf(1), 1}, {-1, 1}, {1, -1}, {1, math.NaN()}} {
		if f, err := Clip(bad[0], bad[1]); err == nil {
			t.Errorf("Clip(%v, %v) = %v", bad[0], bad[1], f)
		}
	}
	// In float32 a sum of squares stops growing at 2^24 ones; here it does not.
	ones := make([]float32, 1<<20)
	for i := range ones {
		ones[i] = 1
	}
	if s := SumSquares(ones); GlobalNorm(s, 1<<24) != math.Sqrt(1<<24+1<<20) {
		t.Errorf("sum %v", s)
	}
}

func TestNoDecay(t *testing.T) {
	names := map[string]string{ // name: the word that covers it
		"model.layers.0.input_layernorm.weight": "norms", "model.norm.weight": "norms", "transformer.h.0.ln_1.weight": "norms", "ln_f.weight": "norms",
		"model.layers.3.self_attn.q_norm.weight": "norms", "encoder.layers.0.norm1.weight": "norms", "embeddings.LayerNorm.weight": "norms", "backbone.norm_f.weight": "norms",
		"encoder.final_layer_norm.weight": "norms", "h.0.attn.c_attn.bias": "biases", "self_attn.in_proj_bias": "biases", "0.bias": "biases",
		"model.embed_tokens.weight": "embeddings", "transformer.wte.weight": "embeddings", "wpe.weight": "embeddings", "tok_embeddings.weight": "embeddings",
		"bert.embeddings.word_embeddings.weight": "embeddings", "embedding.weight": "embeddings",
		"model.layers.0.mlp.down_proj.weight": "", "lm_head.weight": "", "0.weight": "", "normalizer_net.proj.weight": "", "plnet.weight": "", "self_attn.in_proj_weight": "",
	}
	for word := range paramWords {
		decays, err := NoDecay{word}.Decays(nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, covered := range names {
			if decays(name) != (covered != word) {
				t.Errorf("%s without %s: decays is %v", name, word, decays(name))
			}
		}
	}
	of := Layers{"n1.weight": Norms, "table": Embeddings}
	for name, decay := range map[string]bool{"n1.weight": false, "n2.weight": true, "table": true, "rnn.bias_hh_l0": false, "relative_attention_bias.weight": false} {
		if decays, err := DefaultNoDecay().Decays(of); err != nil || decays(name) != decay {
			t.Errorf("%s decays: %v, want %v (%v)", name, !decay, decay, err)
		}
	}
	if frozen, err := Matches([]string{"norms", "embeddings"}, of); err != nil || !frozen("n1.weight") || !frozen("table") || frozen("bn1.running_mean") {
		t.Errorf("params by their layers: %v", err)
	}
	all, _ := NoDecay{}.Decays(nil)
	own, err := append(DefaultNoDecay(), `^lm_head\.`).Decays(nil)
	if err != nil || !all("0.bias") || own("lm_head.weight") || own("0.bias") || !own("wte.weight") {
		t.Errorf("lists of words and patterns: %v", err)
	}
	for _, bad := range []NoDecay{{"("}, {""}} {
		if _, err := bad.Decays(nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLowestRates(t *testing.T) {
	s, err := ParseSchedule("cosine_with_min_lr:min_lr=1e-5")
	if err != nil {
		t.Fatal(err)
	}
	if over, err := s.Over(10, 1e-4); err != nil || over.Total != 10 || math.Abs(over.Factor(10)-0.1) > 1e-12 {
		t.Errorf("it ends at %v of the peak: %v", over.Factor(10), err)
	}
	if _, err := s.Over(10, 1e-5); err == nil || !strings.Contains(err.Error(), "not below the peak") {
		t.Errorf("a lowest rate as high as the peak: %v", err)
	}
}
