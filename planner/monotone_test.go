package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"spillway/graph"
	"spillway/lora"
	"spillway/nn"
	"spillway/plan"
	"spillway/planner"
)

// noSlower is what a plan for more of something may take longer than that for less: a search does not look at every plan.
const noSlower = 1.03

// A tenth more of the host or of the device than a plan takes is enough to find it, or one as fast; also where the host
// could not store all that may stream.
func TestLittleMoreThanNeededIsEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	for range 16 {
		r, name := randomRequest(t, random, "host:64GiB")
		p, _, err := r.Plan()
		if errors.As(err, new(*planner.FitError)) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, tier := range []plan.Tier{plan.OnHost, plan.OnDevice} {
			q := r
			if tier == plan.OnHost {
				q.Site.HostBudget = (p.Peak()[plan.Pinned] + p.Peak()[plan.OnHost]) * 11 / 10
			} else {
				q.Site.Budget = min(q.Site.Budget, p.Peak()[plan.OnDevice]*11/10)
			}
			again, _, err := q.Plan()
			if err != nil {
				t.Errorf("%s: %s takes %v; with a tenth more of %s: %v", name, p.Strategy, p.Peak(), tier, err)
			} else if a, b := again.Forecast.StepSeconds, p.Forecast.StepSeconds; a > noSlower*b {
				t.Errorf("%s: %s takes %v s; with a tenth more of %s %s takes %v", name, p.Strategy, b, tier, again.Strategy, a)
			}
		}
	}
}

// More memory, a faster link or more GPUs are never forecast to be slower, and what fitted still fits.
func TestMoreIsNeverSlower(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 2))
	for range 3 {
		model, task, seq := randomModel(random)
		memory, link, host, gpus := 700<<random.IntN(3), 6<<random.IntN(3), 512<<random.IntN(4), 1
		grow := map[string]func(){"device memory": func() { memory += memory / 2 }, "link": func() { link *= 2 }, "host memory": func() { host += host / 2 }, "GPUs": func() { gpus *= 2 }}
		for _, what := range []string{"device memory", "link", "host memory", "GPUs"} {
			before := []int{memory, link, host, gpus}
			last, of := 0.0, ""
			for range 3 {
				name := fmt.Sprintf("%s, %s, seq %d, %dxgpu:%dMiB@%dGB/s/40TFLOPS,host:%dMiB", model, task, seq, gpus, memory, link, host)
				seconds := batchSeconds(t, name, model, fmt.Sprintf("%dxgpu:%dMiB@%dGB/s/40TFLOPS,host:%dMiB", gpus, memory, link, host), seq, task)
				if last > 0 && (seconds == 0 || seconds > noSlower*last) {
					t.Errorf("more %s: %s takes %v s (0: does not fit), %s took %v", what, name, seconds, of, last)
				}
				if seconds > 0 {
					last, of = seconds, name
				}
				grow[what]()
			}
			memory, link, host, gpus = before[0], before[1], before[2], before[3]
		}
	}
}

// Where the host cannot store what leaves the device, each GiB more of it spares reads from the disk.
func TestMoreHostMemorySparesTheDisk(t *testing.T) {
	adapters := func(m nn.Model) error {
		_, err := lora.Attach(m, lora.Options{Rank: 16, Alpha: 32, Targets: []string{"all-linear"}})
		return err
	}
	last := 0.0
	for host := 6; host <= 12; host++ {
		r := adapted(t, "llama-3-8b", fmt.Sprintf("gpu:8GiB,host:%dGiB,disk:1TiB", host), 1, 1024, graph.Train, adapters)
		p, _, err := r.Plan()
		if err != nil {
			t.Fatal(err)
		}
		seconds := p.Forecast.StepSeconds
		if last > 0 && seconds > noSlower*last {
			t.Errorf("host of %d GiB: %v takes %v s, with a GiB less it took %v", host, p.Strategy, seconds, last)
		}
		last = seconds
	}
}

// Over a slow link one GPU may be faster than two: then it works alone.
func TestOneOfTwoGPUsWorksWhereThatIsFaster(t *testing.T) {
	one := batchSeconds(t, "one GPU", "gpt2", "gpu:1GiB@6GB/s/40TFLOPS,host:8GiB", 512, graph.Train)
	r := named(t, "gpt2", "2xgpu:1GiB@6GB/s/40TFLOPS,host:8GiB", 1, 512, graph.Train)
	p, _, _, err := r.PlanBatch(planner.Batch{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	if p.Forecast.StepSeconds > noSlower*one {
		t.Errorf("two GPUs: %s takes %v s, one alone takes %v", p.Strategy, p.Forecast.StepSeconds, one)
	}
}

func randomModel(random *rand.Rand) (model string, task graph.Task, seq int64) {
	models, tasks := []string{"gpt2", "llama-50m", "qwen2.5-0.5b"}, []graph.Task{graph.Train, graph.Infer}
	return models[random.IntN(len(models))], tasks[random.IntN(len(tasks))], 128 << random.IntN(3)
}

// randomRequest is for a GPU that has some hundred MiB to some GiB.
func randomRequest(t *testing.T, random *rand.Rand, host string) (r planner.Request, name string) {
	model, task, seq := randomModel(random)
	on := fmt.Sprintf("gpu:%dMiB@%dGB/s/40TFLOPS,%s", 640+random.IntN(2000), 6<<random.IntN(4), host)
	return named(t, model, on, 1+random.Int64N(4), seq, task), fmt.Sprintf("%s, %s, seq %d, on %s", model, task, seq, on)
}

// batchSeconds is what a batch of four is forecast to take on a machine, 0 where it does not fit.
func batchSeconds(t *testing.T, name, model, on string, seq int64, task graph.Task) float64 {
	r := named(t, model, on, 1, seq, task)
	p, _, _, err := r.PlanBatch(planner.Batch{Size: 4})
	if errors.As(err, new(*planner.FitError)) {
		return 0
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p.Forecast.StepSeconds
}

// Lines of candidates may lead to the same plan; it is reported once, with its best time.
func TestRejectedPlansAreListedOnce(t *testing.T) {
	for _, machine := range []string{"2xgpu:4GiB,host:16GiB", "4xgpu:2GiB,host:16GiB,peer@50GB/s"} {
		for _, task := range []graph.Task{graph.Train, graph.Infer} {
			p, _, _, err := named(t, "llama-50m", machine, 1, 512, task).PlanBatch(planner.Batch{Size: 4})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{p.Strategy: true}
			for _, a := range p.Rejected {
				if seen[a.Strategy] {
					t.Errorf("%s, %s: %q is listed twice", machine, task, a.Strategy)
				}
				seen[a.Strategy] = true
			}
		}
	}
}
